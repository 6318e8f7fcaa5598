// Beside the pictures: what can happen next, every node's variables, the procedure that ran, and what was counted.
import { $, S, ask, button, keepingFocus, make } from "./shared.js";

const MOST_SHOWN = 60;
const HIDDEN = ["me", "others"]; // variables that say nothing new

export const MESSAGE_VERBS = [
  ["now", "deliver", "let it arrive now"],
  ["later", "delay", "let it arrive much later"],
  ["lose", "lose", "it never arrives"],
];

export function nodeVerbs(phase, timers = []) {
  const dead = phase === "crashed";
  const stopped = phase === "stopped";
  return [
    ["request", "ask to enter", phase === "idle"],
    ["release", "leave the critical section", phase === "inside"],
    ["fire", `its time for ${timers.join(", ") || "nothing"} is up now`, timers.length > 0 && !dead && !stopped],
    stopped ? ["resume", "let it go on", true] : ["pause", "stop it for a while", !dead],
    dead ? ["restart", "it starts again, with nothing remembered", true] : ["crash", "kill it", true],
  ];
}

// Messages that may arrive next: all, or where order is kept the first on each channel.
export function arrivals(run, frame) {
  const flying = run.flight(frame);
  if (!run.about.fifo) return flying;
  const first = new Map();
  for (const message of flying) {
    const way = `${message.from}>${message.to}`;
    if (!first.has(way)) first.set(way, message);
  }
  return [...first.values()];
}

export function nextSteps(act) {
  keepingFocus("flight", () => listSteps(act));
}

function listSteps(act) {
  const run = S.run;
  const flying = run.flight(S.frame);
  const may = new Set(arrivals(run, S.frame));
  const count = `${flying.length} message${flying.length === 1 ? "" : "s"} under way`;
  $("flight-count").textContent = flying.length ? count : "nothing under way";
  $("flight").replaceChildren(
    ...flying.slice(0, MOST_SHOWN).map((message) => {
      const text = `${run.name(message.from)} → ${run.name(message.to)} ${message.words}`;
      const item = make("li", {}, make("span", { textContent: text, title: text }));
      if (!run.fixed)
        for (const [name, verb, title] of MESSAGE_VERBS) {
          const made = button(name, title, () => act(verb, message.id));
          if (verb === "deliver" && !may.has(message)) made.title = "an earlier message on the same way comes first";
          item.append(made);
        }
      return item;
    }),
    ...nodeSteps(act),
  );
  if (flying.length > MOST_SHOWN)
    $("flight").append(make("li", { textContent: `… and ${flying.length - MOST_SHOWN} more` }));
}

// What nodes may do of their own accord.
function nodeSteps(act) {
  if (S.run.fixed || S.state?.frame !== S.frame) return [];
  const found = [];
  for (const [node, is] of Object.entries(S.state.nodes).slice(0, MOST_SHOWN))
    for (const [verb, title, can] of nodeVerbs(is.phase, is.timers))
      if (can && ["request", "release", "fire"].includes(verb)) {
        const words = { request: "asks to enter", release: "leaves", fire: `is out of time: ${is.timers.join(", ")}` }[
          verb
        ];
        const text = make("span", { textContent: `node ${S.run.name(node)} ${words}` });
        found.push(
          make(
            "li",
            {},
            text,
            button("now", title, () => act(verb, +node)),
          ),
        );
      }
  return found;
}

let asking = 0;
export function tables(act) {
  clearTimeout(asking);
  if (!S.run.fixed) asking = setTimeout(() => fetched(act), 40);
  else if (S.run.states) shown(recorded(S.run, S.frame), act);
  else {
    for (const id of ["states", "counters"]) $(id).replaceChildren();
    $("procedure").replaceChildren(make("p", { className: "soft", textContent: "A recorded trace has no variables." }));
  }
}

async function fetched(act) {
  const { frame, run } = S;
  const found = await ask("state", { ...run.plan, frame });
  const other = S.other;
  const beside =
    other &&
    (await ask("state", { ...other.plan, frame: S.frame === run.last ? other.last : other.frameAt(run.time(frame)) }));
  if (found && run === S.run && found.frame === S.frame) shown({ ...found, beside: beside?.counters }, act);
}

// A counterexample brings its states along.
function recorded(run, frame) {
  const before = run.states[frame - 1] || run.states[frame];
  const nodes = {};
  for (const [node, is] of Object.entries(run.states[frame])) {
    const changed = Object.keys(is.state).filter((name) => before[node].state[name] !== is.state[name]);
    nodes[node] = { ...is, changed, ran: [], timers: [] };
  }
  return { frame, nodes, counters: null };
}

function shown(found, act) {
  S.state = found;
  nextSteps(act);
  keepingFocus("states", () => nodesTable(found, act));
  counters(found.counters, found.beside);
  procedure(found);
}

function nodesTable(found, act) {
  const run = S.run;
  const nodes = Object.entries(found.nodes).slice(0, MOST_SHOWN);
  const names = nodes.length ? Object.keys(nodes[0][1].state).filter((name) => !HIDDEN.includes(name)) : [];
  const head = ["node", "is", ...names, ""].map((textContent) => make("th", { textContent }));
  const rows = nodes.map(([node, is]) => {
    const values = names.map((name) => {
      const text = is.state[name] ?? "";
      return make("td", {
        className: is.changed.includes(name) ? "value changed" : "value",
        textContent: text,
        title: text,
      });
    });
    const does = make("td");
    if (!run.fixed)
      for (const [verb, title, can] of nodeVerbs(is.phase, is.timers)) {
        if (verb === "fire" && !can) continue;
        const made = button(verb, `${title}: node ${node}`, () => act(verb, +node));
        made.disabled = !can;
        does.append(made, " ");
      }
    const phase = make("td", {}, make("span", { className: `phase ${is.phase}`, textContent: is.phase }));
    return make("tr", {}, make("td", { textContent: run.name(node) }), phase, ...values, does);
  });
  $("states").replaceChildren(make("tr", {}, ...head), ...rows);
  const more = Object.keys(found.nodes).length - nodes.length;
  $("states-more").textContent = more > 0 ? `The first ${nodes.length} nodes; ${more} more are in the pictures.` : "";
}

function counters(counted, beside) {
  if (!counted) return $("counters").replaceChildren();
  const list = [
    ["messages", counted.messages],
    ["entries", counted.entries],
    ["messages an entry", counted.mean === null ? "-" : counted.mean.toFixed(2)],
    ["the paper claims", S.run.about.claimed || "-"],
    ["inside together", counted.violations],
  ];
  if (beside) {
    list.unshift(["", S.run.about.algorithm]);
    const theirs = ["messages", "entries", "mean"].map((name) => beside[name]);
    const others = [
      S.other.about.algorithm,
      theirs[0],
      theirs[1],
      theirs[2]?.toFixed(2) ?? "-",
      S.other.about.claimed || "-",
    ];
    for (const [at, value] of [...others, beside.violations].entries()) list[at][1] += ` | ${value}`;
  }
  $("counters").replaceChildren(
    ...list.flatMap(([name, value]) => [
      make("dt", { textContent: name }),
      make("dd", {
        textContent: `${value}`,
        className: name === "inside together" && /[1-9]/.test(value) ? "bad" : "",
      }),
    ]),
  );
}

// The text of the algorithm that the last step ran through.
function procedure(found) {
  const parts = [];
  for (const [node, is] of Object.entries(found.nodes)) {
    const ran = is.ran.filter((name) => S.run.procedures[name]);
    // `receive` only finds out which message it is; the procedures that it calls say more.
    const telling = ran.length > 1 ? ran.filter((name) => !name.endsWith(".receive")) : ran;
    if (telling.length) parts.push(make("p", {}, make("b", { textContent: `At node ${S.run.name(node)}` })));
    for (const name of telling) {
      const { says, source } = S.run.procedures[name];
      const summary = make("summary", {}, make("code", { textContent: name.split(".").pop() }), says ? ` ${says}` : "");
      parts.push(
        make(
          "details",
          { open: telling.length < 4 || name === telling[0] },
          summary,
          make("pre", { textContent: source }),
        ),
      );
    }
  }
  const none = S.run.fixed ? "A recorded trace has no procedures." : "No procedure of the algorithm ran in this step.";
  $("procedure").replaceChildren(...(parts.length ? parts : [make("p", { className: "soft", textContent: none })]));
}
