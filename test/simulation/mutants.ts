/**
 * Mutants of sources: each is one small change, made by a usual operator of mutation testing, that
 * a simulated or a small world must notice.
 *
 * Code is mutated, and not comments, types, imports and texts. Assertions (`invariant`) are left
 * out too: they decide nothing in a program without defects.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  isBinaryExpression,
  isCallExpression,
  isConditionalExpression,
  isContinueStatement,
  isExpressionStatement,
  isIdentifier,
  isIfStatement,
  isImportDeclaration,
  isNewExpression,
  isNumericLiteral,
  isPrefixUnaryExpression,
  isPropertyAccessExpression,
  isStringLiteral,
  isTemplateExpression,
  isThrowStatement,
  isTypeNode,
  isWhileStatement,
  type Node,
  type SourceFile,
  SyntaxKind,
} from "typescript/unstable/ast";
import { API } from "typescript/unstable/sync";
import type { Edit } from "./process.ts";
import { Random } from "./random.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

export interface Mutant {
  /** Name of the mutation operator. */
  operator: string;
  line: number;
  /** Code of the line. */
  code: string;
  edit: Edit & { at: number };
}

/** Text in place of a node, by its operator. */
type Replacement = readonly [operator: string, node: Node, to: string];

const relational = new Map<SyntaxKind, readonly [operator: string, to: string][]>([
  [SyntaxKind.LessThanToken, [boundary("<="), negated(">=")]],
  [SyntaxKind.LessThanEqualsToken, [boundary("<"), negated(">")]],
  [SyntaxKind.GreaterThanToken, [boundary(">="), negated("<=")]],
  [SyntaxKind.GreaterThanEqualsToken, [boundary(">"), negated("<")]],
  [SyntaxKind.EqualsEqualsEqualsToken, [negated("!==")]],
  [SyntaxKind.ExclamationEqualsEqualsToken, [negated("===")]],
]);

function boundary(to: string): [string, string] {
  return ["conditional boundary", to];
}

function negated(to: string): [string, string] {
  return ["relational operator replacement", to];
}

const logical = new Map<SyntaxKind, string>([
  [SyntaxKind.AmpersandAmpersandToken, "||"],
  [SyntaxKind.BarBarToken, "&&"],
  [SyntaxKind.QuestionQuestionToken, "&&"],
]);

const arithmetic = new Map<SyntaxKind, string>([
  [SyntaxKind.PlusToken, "-"],
  [SyntaxKind.MinusToken, "+"],
  [SyntaxKind.AsteriskToken, "/"],
  [SyntaxKind.SlashToken, "*"],
  [SyntaxKind.PercentToken, "*"],
  [SyntaxKind.AsteriskAsteriskToken, "*"],
  [SyntaxKind.PlusEqualsToken, "-="],
  [SyntaxKind.MinusEqualsToken, "+="],
]);

/** Names of methods, and what they are exchanged for. */
const methods = new Map([
  ["min", "max"],
  ["max", "min"],
  ["floor", "ceil"],
  ["ceil", "floor"],
  ["some", "every"],
  ["every", "some"],
]);

/** Returns the changes that can be made at a node itself. */
function replacementsOf(node: Node, text: (node: Node) => string): Replacement[] {
  if (isBinaryExpression(node)) {
    const { operatorToken: token, left, right } = node;
    const isText = [left, right].some((side) => isStringLiteral(side) || isTemplateExpression(side));
    const found: Replacement[] = [];
    for (const [operator, to] of relational.get(token.kind) ?? []) found.push([operator, token, to]);
    const connector = logical.get(token.kind);
    if (connector !== undefined) {
      // `??` cannot stand beside other connectors without brackets.
      const [one, other] = [left, right].map((side) => `(${text(side)})`);
      found.push(["logical connector replacement", node, `(${one} ${connector} ${other})`]);
    }
    const sign = arithmetic.get(token.kind);
    if (sign !== undefined && !isText) found.push(["arithmetic operator replacement", token, sign]);
    return found;
  }
  if (isPrefixUnaryExpression(node)) {
    const { operator, operand } = node;
    if (operator === SyntaxKind.ExclamationToken) return [["negated condition", node, text(operand)]];
    if (operator === SyntaxKind.MinusToken) return [["arithmetic operator replacement", node, text(operand)]];
    return [];
  }
  if (isIfStatement(node) || isWhileStatement(node)) {
    const deletion: Replacement = ["statement deletion", node, ";"];
    return [...negationOf(node.expression, text), ...(isIfStatement(node) ? [deletion] : [])];
  }
  if (isConditionalExpression(node)) return negationOf(node.condition, text);
  if (isExpressionStatement(node) || isContinueStatement(node)) return [["statement deletion", node, ";"]];
  if (isPropertyAccessExpression(node)) {
    const other = methods.get(text(node.name));
    return other === undefined ? [] : [["method replacement", node.name, other]];
  }
  if (isNumericLiteral(node)) {
    const value = Number(text(node).replaceAll("_", ""));
    const others = new Set([0, 1, value + 1].filter((other) => other !== value));
    return [...others].map((other) => ["constant replacement", node, String(other)]);
  }
  if (node.kind === SyntaxKind.TrueKeyword) return [["constant replacement", node, "false"]];
  if (node.kind === SyntaxKind.FalseKeyword) return [["constant replacement", node, "true"]];
  return [];
}

/** Comparisons and negations have their own operators. */
function negationOf(condition: Node, text: (node: Node) => string): Replacement[] {
  if (isPrefixUnaryExpression(condition)) return [];
  if (isBinaryExpression(condition) && relational.has(condition.operatorToken.kind)) return [];
  return [["negated condition", condition, `!(${text(condition)})`]];
}

/** Errors and assertions: their texts decide nothing. */
function isLeftOut(node: Node, text: (node: Node) => string): boolean {
  if (isTypeNode(node) || isImportDeclaration(node) || isThrowStatement(node)) return true;
  if (isNewExpression(node)) return text(node.expression).endsWith("Error");
  return isCallExpression(node) && isIdentifier(node.expression) && text(node.expression) === "invariant";
}

/** Returns the places of a source that can be changed, each with its mutants. */
function pointsOf(file: string, source: SourceFile): Mutant[][] {
  const code = source.text;
  const text = (node: Node) => code.slice(node.getStart(source), node.end);
  const points: Mutant[][] = [];
  const visit = (node: Node): void => {
    if (isLeftOut(node, text)) return;
    const found = replacementsOf(node, text).filter(
      ([, at]) => !(isExpressionStatement(at) && isLeftOut(at.expression, text)),
    );
    if (found.length > 0) {
      points.push(
        found.map(([operator, at, to]): Mutant => {
          const from = at.getStart(source);
          const line = code.slice(0, from).split("\n").length;
          const edit = { file, from: code.slice(from, at.end), to, at: from };
          return { operator, line, code: code.split("\n")[line - 1]?.trim() ?? "", edit };
        }),
      );
    }
    node.forEachChild(visit);
  };
  visit(source);
  return points;
}

/** Returns all places of the sources in a folder that can be changed, each with its mutants. */
export function mutationPoints(folder: string): Mutant[][] {
  const api = new API({ cwd: root });
  try {
    const { program } = api.updateSnapshot({ openProjects: ["tsconfig.json"] }).getProjects()[0] ?? {};
    const files = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).toSorted();
    return files
      .filter((file) => file.endsWith(".ts"))
      .flatMap((file) => {
        const source = program?.getSourceFile(join(root, folder, file));
        if (source === undefined) throw new Error(`the compiler has no ${file}`);
        return pointsOf(join(folder, file), source);
      });
  } finally {
    api.close();
  }
}

/** Draws mutants at different places, and one of each place. */
export function drawn(
  points: readonly Mutant[][],
  { seed, count }: { seed: number; count: number },
): Mutant[] {
  const random = new Random(seed);
  const left = [...points];
  const mutants: Mutant[] = [];
  while (mutants.length < count && left.length > 0) {
    const [point = []] = left.splice(random.whole(0, left.length - 1), 1);
    mutants.push(random.pick(point));
  }
  return mutants;
}
