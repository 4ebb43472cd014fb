/** The balance as a picture: what is left of each bucket, and how much of its window has passed. */
import type { ComponentChildren } from "preact";
import { Figure } from "./layout.tsx";
import { wholeNumber } from "./numbers.ts";
import { passedShare } from "./times.ts";
import type { Balance, Refills } from "./types.ts";
import { Due, ShortAmount, Time } from "./values.tsx";

interface BalanceProps {
  balance: Balance;
  refills: Refills;
  heldMicro: number;
  /** Said below what is left. */
  note?: ComponentChildren;
}

const titles = { base: "Base", overage: "Overage" } as const;

export function BalancePicture(props: BalanceProps) {
  const { balance, refills, heldMicro, note = "whole credits, rounded down" } = props;
  const { balances, caps } = balance;
  return (
    <>
      <div class="figures">
        <Figure name="Credits left" note={note}>
          {wholeNumber(balances.total.credits)}
        </Figure>
        <Figure name="Additional credits" note="promotions, and payments, which do not lapse">
          {wholeNumber(balances.additional.credits)}
        </Figure>
        <Figure name="Held credits" note="for running requests">
          <ShortAmount micro={heldMicro} />
        </Figure>
      </div>
      {(["base", "overage"] as const).map((name) => (
        <Bucket
          key={name}
          name={titles[name]}
          {...balances[name]}
          cap={caps[name].credits}
          window={balance[`${name}Window`]}
          refill={refills.find(({ bucket }) => bucket === name)}
        />
      ))}
    </>
  );
}

function Bucket(props: {
  name: "Base" | "Overage";
  credits: number;
  percent: number;
  cap: number;
  window: { startedAt: string; refreshesAt: string };
  refill: Refills[number] | undefined;
}) {
  const { name, credits, percent, cap, window, refill } = props;
  if (cap === 0) {
    return (
      <p class="bucket quiet">
        {name}: the plan grants none.
        {refill && (
          <>
            {" "}
            It gets {wholeNumber(refill.credits)} <Due at={refill.at} />.
          </>
        )}
      </p>
    );
  }
  return (
    <LeftBar
      kind={name.toLowerCase()}
      name={name}
      left={`${wholeNumber(credits)} of ${wholeNumber(cap)} (${Math.floor(percent)} %)`}
      label={`${Math.floor(percent)} % of the ${name.toLowerCase()} credits are left`}
      percent={percent}
      passed={passedShare(Date.parse(window.startedAt), Date.parse(window.refreshesAt), Date.now())}
    >
      <span>
        started <Time at={window.startedAt} />
      </span>
      <span>
        {refill ? `refills to ${wholeNumber(refill.credits)}` : "ends without a refill"}{" "}
        <Due at={window.refreshesAt} />
      </span>
    </LeftBar>
  );
}

interface LeftProps {
  /** The class of its colour. */
  kind?: string;
  name: string;
  left: string;
  /** For screen readers. Default: name and rest. */
  label?: string;
  percent: number;
  heldPercent?: number;
  /** The share of its window that has passed. */
  passed?: number;
  /** Said below. */
  children: ComponentChildren;
}

/** A bar of what is left. */
export function LeftBar(props: LeftProps) {
  const { kind = "", name, left, percent, heldPercent = 0, passed, children } = props;
  return (
    <div class={`bucket ${kind}`}>
      <p>
        <strong>{name}</strong> <span class="number">{left}</span>
      </p>
      <div class="bar" role="img" aria-label={props.label ?? `${name}: ${left}`}>
        <i style={{ width: `${percent}%` }} />
        <i class="held" style={{ width: `${heldPercent}%` }} />
        {passed !== undefined && (
          <b
            style={{ left: `${passed * 100}%` }}
            title={`${Math.round(passed * 100)} % of the window has passed`}
          />
        )}
      </div>
      <p class="quiet ends">{children}</p>
    </div>
  );
}
