-- Sums by hour of each key too, and the hour from which they are complete
-- (docs/ledger.md).

drop table usage_hour;

create table usage_hour (
  -- Hours since 1970, in UTC.
  hour integer not null,
  -- Empty in the rows of all accounts.
  account text not null,
  -- Empty in the rows of all keys.
  key text not null,
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
  primary key (account, key, hour, model)
) strict, without rowid;

create index usage_hour_by_hour on usage_hour (hour);

-- From this hour on, the sums are those of all charges up to `through`. Earlier hours are deleted, or lack charges.
alter table usage_summed add column hours_from integer not null default 0;

update usage_summed set hours_from = coalesce((select at_ms from charge order by rowid desc limit 1) / 3600000 - 191, 0);

insert into usage_hour
with summed as (
  select c.at_ms / 3600000 as hour, c.account, c.key, c.model, case when c.late then 0 else 1 end as requests,
    case when c.late then 1 else 0 end as late, c.prompt_tokens, c.cached_tokens, c.completion_tokens,
    c.reasoning_tokens, c.cost, c.base, c.overage, c.additional, c.shortfall
  from charge c
  where c.rowid <= (select through from usage_summed)
    and c.at_ms / 3600000 >= (select hours_from from usage_summed)
),
by_key as (
  select hour, account, key, model, sum(requests) as requests, sum(late) as late, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens,
    sum(reasoning_tokens) as reasoning_tokens, sum(cost) as cost, sum(base) as base, sum(overage) as overage,
    sum(additional) as additional, sum(shortfall) as shortfall
  from summed group by 1, 2, 3, 4
)
select hour, account, key, model, requests, late, prompt_tokens, cached_tokens, completion_tokens,
  reasoning_tokens, cost, base, overage, additional, shortfall
from by_key
union all
select hour, account, '', model, sum(requests), sum(late), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),
  sum(reasoning_tokens), sum(cost), sum(base), sum(overage), sum(additional), sum(shortfall)
from by_key group by hour, account, model
union all
select hour, '', '', model, sum(requests), sum(late), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),
  sum(reasoning_tokens), sum(cost), sum(base), sum(overage), sum(additional), sum(shortfall)
from by_key group by hour, model;
