/** The grants below the time line: what is left, held and spent of each, over the same time. */
import { exactCredits, microPerCredit } from "../../src/units.ts";
import { shareOf } from "./lanes.tsx";
import type { Level, Strip } from "./strips.ts";

/** The height of all strips, and of a credit if there are few. */
const pixelsMax = 420;
const creditPixels = 1.9;
const stripPixelsMin = 26;

export function Grants({ strips, cursor }: { strips: readonly Strip[]; cursor: number }) {
  const credits = strips.reduce((sum, { height }) => sum + height, 0);
  const scale = Math.min(creditPixels, pixelsMax / credits);
  return strips.map((strip) => (
    <StripRow key={`${strip.name} ${strip.kind}`} strip={strip} cursor={cursor} scale={scale} />
  ));
}

function StripRow({ strip, cursor, scale }: { strip: Strip; cursor: number; scale: number }) {
  const { name, kind, levels, height } = strip;
  const now = levels.findLast(({ from, until }) => from <= cursor && cursor <= until);
  const left = now === undefined ? "" : exactCredits(now.leftMicro + now.heldMicro);
  return (
    <div class={`row strip ${kind}`}>
      <div class="label">
        <span>{name}</span>
        <span class="quiet">{now === undefined ? "–" : `${left} of ${exactCredits(now.amountMicro)}`}</span>
      </div>
      <div class="track" style={{ height: `${Math.max(stripPixelsMin, height * scale)}px` }}>
        {levels.map((level) => (
          <LevelBar key={`${level.from} ${level.seq}`} level={level} height={height} />
        ))}
      </div>
    </div>
  );
}

function LevelBar({ level, height }: { level: Level; height: number }) {
  const { from, until, leftMicro, heldMicro, spentMicro, amountMicro, ownHeldMicro, ownSpentMicro } = level;
  const layers = [
    ["left", leftMicro],
    ["held", heldMicro - ownHeldMicro],
    ["own held", ownHeldMicro],
    ["own spent", ownSpentMicro],
    ["spent", spentMicro - ownSpentMicro],
  ] as const;
  const share = (micro: number) => `${(micro / microPerCredit / height) * 100}%`;
  return (
    <div class="level" style={{ left: shareOf(from), width: shareOf(until - from) }}>
      <b style={{ height: share(amountMicro) }} />
      {layers.map(
        ([name, micro]) => micro > 0 && <i key={name} class={name} style={{ height: share(micro) }} />,
      )}
    </div>
  );
}
