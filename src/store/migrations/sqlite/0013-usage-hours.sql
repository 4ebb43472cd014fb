-- Charges, summed by hour for graphs of the last days (docs/decisions/0048-lists-of-accounts.md).

create table usage_hour (
  -- Hours since 1970, in UTC.
  hour integer not null,
  -- Empty in the rows of all accounts.
  account text not null,
  model text not null,
  requests integer not null,
  late integer not null,
  prompt_tokens integer not null,
  cached_tokens integer not null,
  completion_tokens integer not null,
  reasoning_tokens integer not null,
  cost integer not null,
  base integer not null,
  overage integer not null,
  additional integer not null,
  shortfall integer not null,
  primary key (account, hour, model)
) strict, without rowid;

create index usage_hour_by_hour on usage_hour (hour);

-- The last days of charges that were summed before.
insert into usage_hour
with summed as (
  select c.at_ms / 3600000 as hour, c.account, c.model, case when c.late then 0 else 1 end as requests,
    case when c.late then 1 else 0 end as late, c.prompt_tokens, c.cached_tokens, c.completion_tokens,
    c.reasoning_tokens, c.cost, c.base, c.overage, c.additional, c.shortfall
  from charge c
  where c.rowid <= (select through from usage_summed)
    and c.at_ms >= (select at_ms from charge order by rowid desc limit 1) - 691200000
)
select hour, account, model, sum(requests), sum(late), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),
  sum(reasoning_tokens), sum(cost), sum(base), sum(overage), sum(additional), sum(shortfall)
from summed group by 1, 2, 3
union all
select hour, '', model, sum(requests), sum(late), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),
  sum(reasoning_tokens), sum(cost), sum(base), sum(overage), sum(additional), sum(shortfall)
from summed group by 1, 2, 3;
