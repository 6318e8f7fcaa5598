// The page: what is shown, and what the user does to it.
import * as address from "./address.js";
import { diagram, forgetColours, network } from "./draw.js";
import { LESSONS } from "./lessons.js";
import { live } from "./live.js";
import { openMenu } from "./menu.js";
import { MESSAGE_VERBS, arrivals, nextSteps, nodeVerbs, tables } from "./panels.js";
import { Run } from "./run.js";
import { $, S, ask, button, make, say } from "./shared.js";

const hits = { messages: [], nodes: [], arrows: [] }; // what stands where in the pictures
let typed = ""; // the file that the user has written into the form, and no address
let about = { algorithms: [], group: "", trace: null };

// -- runs ----------------------------------------------------------------------------------------------------

async function shoot(keepFrame = 0) {
  play(false);
  $("verdict").replaceChildren();
  const wanted = [S.experiment, S.acts, S.beside];
  S.again = () => {
    [S.experiment, S.acts, S.beside] = wanted;
    return shoot(keepFrame);
  };
  const film = await ask("film", { experiment: S.experiment, acts: S.acts });
  return film ? take(film, keepFrame) : false;
}

// A new film replaces the one that is shown. Acts that were not possible are no part of it.
async function take(film, keepFrame) {
  const refused = Object.values(film.refused);
  S.from = null;
  S.acts = S.acts.filter((_, at) => !(at in film.refused));
  S.run = new Run(film, { experiment: S.experiment, acts: S.acts });
  S.other = null;
  if (S.view === "pair" && S.beside) {
    const experiment = { ...S.experiment, algorithm: S.beside, as_printed: false };
    const other = await ask("film", { experiment });
    if (!other) return false;
    S.other = new Run(other, { experiment, acts: [] });
  }
  say(refused.join(" "));
  S.span = Math.max(2, Math.min(40, S.run.usual * 8 || 12));
  go(Math.min(keepFrame, S.run.last));
  return true;
}

function show(film, words, from = null, tone = "good") {
  play(false);
  S.run = new Run(film, null);
  S.other = null;
  S.from = from; // the address that leads here
  S.span = Math.max(8, Math.min(40, S.run.frames.length));
  say(words, tone);
  go(0);
}

async function act(verb, what) {
  if (S.run.fixed) {
    say("This was recorded: it can be looked at, not changed. Run it to change it.");
    return;
  }
  const past = S.acts.filter((each) => each.at <= S.frame + 1);
  const forked = past.length < S.acts.length;
  const acts = [...past, { at: S.frame + 1, verb, what }];
  const { frame, run } = S;
  S.target = null;
  const film = await ask("film", { experiment: S.experiment, acts });
  if (!film || run !== S.run) return;
  const why = film.refused[past.length];
  if (why) {
    // Nothing has happened. An act that only the papers forbid can be forced.
    const anyway = button("lose it all the same", "and see", () => act("drop", what));
    say(why, "", ...(/ would not survive it/.test(why) ? [anyway] : []));
    return;
  }
  play(false);
  $("verdict").replaceChildren();
  S.acts = acts;
  S.strayed = true;
  if (!(await take(film, frame))) return;
  go(Math.min(S.target ?? frame + 1, S.run.last)); // who has gone on meanwhile stays there
  if (forked) say("The run has forked here: your later acts are no longer part of it.", "good");
}

function go(frame) {
  S.frame = Math.max(0, Math.min(frame, S.run.last));
  S.clock = S.run.time(S.frame);
  paint();
  details();
}

// -- pictures ------------------------------------------------------------------------------------------------

let wanted = false;
function paint() {
  if (wanted || !S.run) return;
  wanted = true;
  requestAnimationFrame(() => {
    wanted = false;
    draw();
  });
}

function draw() {
  if (!S.run) return;
  const began = performance.now();
  const drawn = diagram($("diagram-a"), S.run, S.frame, S.span, undefined, hits.arrows);
  if (S.other) {
    // Both runs follow one clock; when the first is over, the other is shown to its end.
    const over = S.frame === S.run.last;
    const beside = over ? S.other.last : S.other.frameAt(S.run.time(S.frame));
    diagram($("diagram-b"), S.other, beside, S.span, Math.max(S.run.time(S.frame), over ? S.other.time(beside) : 0));
  }
  network($("network"), S.run, S.frame, S.clock, hits);
  $("scrub").max = S.run.last;
  $("scrub").value = S.frame;
  $("where").textContent =
    `step ${S.frame} of ${S.run.last}, time ${+S.run.time(S.frame).toFixed(2)}${drawn > 1 ? `; 1 of ${drawn} messages drawn` : ""}`;
  $("ran").textContent =
    S.frame === S.run.last
      ? `${S.run.words(S.frame)}${S.run.words(S.frame) ? ". " : ""}${S.run.ended}`
      : S.run.words(S.frame);
  window.lab.painted = performance.now() - began;
}

function details() {
  const title = (run) =>
    `${run.about.algorithm}${run.about.form && run.about.form !== "standard" ? `, ${run.about.form.replace("_", " ")}` : ""}: ${run.nodes} nodes${run.about.claimed ? `, claimed ${run.about.claimed} messages an entry` : ""}`;
  $("title-a").textContent = title(S.run);
  $("pane-b").hidden = !S.other;
  if (S.other) $("title-b").textContent = title(S.other);
  nextSteps(act);
  $("acts").textContent = S.acts.length
    ? `Done to this run: ${S.acts.map((a) => `before step ${a.at} ${a.verb} ${a.what}`).join("; ")}.`
    : "";
  $("check").disabled = S.run.fixed;
  $("copy").disabled = S.run.fixed && !S.from;
  for (const button of document.querySelectorAll("[data-export]"))
    button.disabled = S.run.fixed && !(button.dataset.export === "itf" && S.run.itf);
  if (S.view !== "live") history.replaceState(null, "", S.from || (S.run.fixed ? location.hash : here()));
  tables(act);
}

// The address of what is shown. A user who has left the path of a lesson has a run of their own.
function here(more = {}) {
  const inLesson = S.view === "lessons" && !S.strayed;
  return address.write({
    view: S.view === "lessons" && S.strayed ? "run" : S.view,
    experiment: S.experiment,
    acts: S.acts,
    frame: S.frame,
    beside: S.view === "pair" ? S.beside : "",
    lesson: inLesson ? S.lesson : undefined,
    step: S.step,
    ...more,
  });
}

// A run as the form describes it.
async function own() {
  const before = [S.experiment, S.acts, S.beside];
  gather();
  S.acts = [];
  history.pushState(null, "", location.hash);
  S.strayed = true;
  // The user has named this file; the page asks about a file that only an address names.
  const agreed = S.experiment.algorithm !== typed || (await ask("agree", { file: typed }));
  if (!agreed || !(await shoot(0))) [S.experiment, S.acts, S.beside] = before;
}

// What was clicked in a picture: a message under way, or a node.
function pointed(event) {
  const { offsetX: x, offsetY: y } = event;
  const nearest = (all, far) =>
    all.map((each) => [far(each), each.at(-1)]).sort((a, b) => a[0] - b[0])[0] || [Infinity];
  const inNetwork = event.currentTarget === $("network");
  const [far, message] = inNetwork
    ? nearest(hits.messages, ([mx, my]) => Math.hypot(mx - x, my - y))
    : nearest(hits.arrows, ([x0, y0, x1, y1]) => fromLine(x, y, x0, y0, x1, y1));
  const [near, node] = inNetwork ? nearest(hits.nodes, ([nx, ny]) => Math.hypot(nx - x, ny - y)) : [Infinity];
  if (far < 12 && far <= near) {
    const words = `${S.run.name(message.from)} → ${S.run.name(message.to)} ${message.words}`;
    openMenu(
      event,
      words,
      MESSAGE_VERBS.map(([name, verb, title]) => [name, title, () => act(verb, message.id)]),
    );
  } else if (near < 18) {
    const is = S.state?.nodes[node] || { phase: "idle", timers: [] };
    const can = nodeVerbs(is.phase, is.timers).filter(([, , may]) => may);
    openMenu(
      event,
      `node ${S.run.name(node)}, ${is.phase}`,
      can.map(([verb, title]) => [verb, title, () => act(verb, node)]),
    );
  }
}

function fromLine(x, y, x0, y0, x1, y1) {
  const long = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
  const part = Math.max(0, Math.min(1, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / long));
  return Math.hypot(x - x0 - part * (x1 - x0), y - y0 - part * (y1 - y0));
}

// -- playing -------------------------------------------------------------------------------------------------

let before = 0;
function tick(now) {
  if (!S.playing) return;
  const seconds = Math.min(0.1, (now - before) / 1000);
  before = now;
  S.clock += seconds * $("speed").value * (S.run.usual * 1.5 || 1);
  let moved = false;
  while (S.frame < S.run.last && S.run.time(S.frame + 1) <= S.clock) {
    S.frame++;
    moved = true;
  }
  draw();
  if (moved) details();
  if (S.frame >= S.run.last) {
    play(false);
    return;
  }
  requestAnimationFrame(tick);
}

function play(yes = !S.playing) {
  if (!S.run) return;
  if (yes && S.frame >= S.run.last) go(0);
  S.playing = yes;
  $("play").textContent = yes ? "⏸ pause" : "▶ play";
  if (yes) {
    before = performance.now();
    requestAnimationFrame(tick);
  }
}

function stepTo(frame) {
  play(false);
  S.target = Math.max(0, frame);
  if (S.run) go(frame);
}

// -- the checker, files --------------------------------------------------------------------------------------

async function check(openIt = false) {
  if (!S.run) return;
  if (S.run.fixed) {
    say("This was recorded, and is not searched. Run it, then ask again.");
    return;
  }
  const run = S.run;
  const frame = S.frame;
  $("verdict").textContent = "Looking at every interleaving …";
  const found = await ask("check", { ...run.plan, frame });
  if (run !== S.run) return; // somebody has gone on to another run
  $("verdict").replaceChildren();
  if (!found) return;
  const states = found.states.toLocaleString("en");
  const from = found.from_start ? "the start" : `step ${frame}`;
  if (found.violated) {
    const link = here({ frame, lesson: undefined, view: "run", check: true });
    const finding = found.finding[0].toUpperCase() + found.finding.slice(1);
    const look = () => show(found, `${finding}. This is the shortest way to it from ${from}.`, link, "bad");
    const far = found.steps.length;
    const words = far ? `${finding}, ${far} step${far > 1 ? "s" : ""} from ${from}. ` : `${finding} at ${from}. `;
    $("verdict").append(
      make("span", { className: "bad", textContent: words }),
      button("open the counterexample", "watch how", look),
    );
    if (openIt) look();
    return;
  }
  const more = `${found.entries} ${found.from_start ? "" : "more "}${found.entries > 1 ? "entries" : "entry"} each`;
  const late = found.from_start ? ", if no message is late" : "";
  const good = `No: ${states} states from ${from}, all of them good, with ${more}${late}.`;
  const words = found.finished ? good : `Not in the first ${states} states from ${from}; there are more.`;
  $("verdict").append(make("span", { className: found.finished ? "good" : "unfinished", textContent: words }));
}

// The diagram as it is shown, on its background.
function png() {
  if (!S.run) return say("There is no run yet.");
  const drawn = $("diagram-a");
  const copy = make("canvas", { width: drawn.width, height: drawn.height });
  const c = copy.getContext("2d");
  c.fillStyle = getComputedStyle(drawn).backgroundColor;
  c.fillRect(0, 0, copy.width, copy.height);
  c.drawImage(drawn, 0, 0);
  copy.toBlob((blob) => save(blob, `${S.run.about.algorithm}.png`));
}

function zoom(by) {
  S.span *= by;
  paint();
}

function save(text, name, kind = "text/plain") {
  const link = make("a", {
    href: URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type: kind })),
    download: name,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// -- lessons ---------------------------------------------------------------------------------------------------

async function lesson(which, step) {
  S.lesson = which;
  S.step = step;
  const one = LESSONS[which];
  $("lesson").hidden = !one;
  $("lesson-list").hidden = !!one;
  $("view-run").hidden = !one;
  document.body.classList.toggle("in-lesson", !!one);
  if (!one) {
    history.replaceState(null, "", "#view=lessons");
    return;
  }
  const now = one.steps[step];
  $("lesson-title").textContent = one.title;
  $("lesson-step").textContent = `${step + 1} of ${one.steps.length}`;
  $("lesson-words").textContent = now.words;
  $("lesson-try").textContent = now.try ? `Try: ${now.try}` : "";
  $("lesson-back").disabled = step === 0;
  $("lesson-next").disabled = step === one.steps.length - 1;
  S.experiment = { ...one.experiment, ...(now.experiment || {}) };
  S.acts = now.acts || [];
  S.strayed = false;
  fill();
  limits();
  await shoot(now.frame === "end" ? 1e9 : now.frame || 0);
  if (now.check) await check();
}

function lessons() {
  $("lesson-list").replaceChildren(
    ...LESSONS.map((one, at) => {
      const made = button("", one.title, () => lesson(at, 0));
      made.append(make("b", { textContent: one.title }), make("br"), one.about);
      return made;
    }),
  );
}

// -- views -----------------------------------------------------------------------------------------------------

// The user's choice of a view; the browser's way back leads to the view before.
function turnTo(name) {
  history.pushState(null, "", location.hash);
  return view(name);
}

async function view(name) {
  play(false);
  S.view = name;
  for (const tab of document.querySelectorAll("[role=tab]"))
    tab.setAttribute("aria-selected", tab.dataset.view === name);
  $("view-run").hidden = !["run", "pair"].includes(name);
  $("view-lessons").hidden = name !== "lessons";
  $("view-live").hidden = name !== "live";
  document.querySelector(".pair-only").hidden = name !== "pair";
  live(name === "live", about.group);
  say("");
  if (name === "lessons") {
    lessons();
    await lesson(S.lesson, S.step);
  } else if (name === "live") history.replaceState(null, "", "#view=live");
  else {
    document.body.classList.remove("in-lesson");
    if (name === "pair" && !S.beside) {
      S.beside = S.experiment.algorithm === "ricart-agrawala" ? "suzuki-kasami-a" : "ricart-agrawala";
      $("other").value = S.beside;
    }
    await shoot(S.frame);
  }
}

function fill() {
  const set = (id, value) => {
    $(id).value = value ?? "";
  };
  const known = about.algorithms.some((one) => one.name === S.experiment.algorithm);
  $("algorithm").value = known ? S.experiment.algorithm : "own";
  document.querySelector(".own").hidden = known;
  if (!known) set("own", S.experiment.algorithm);
  set("nodes", S.experiment.nodes ?? (isFile(S.experiment.topology) ? "" : 4));
  set("topology", S.experiment.topology);
  set("delay", S.experiment.delay ?? "uniform:0.5,1.5");
  set("load", S.experiment.load ?? "closed");
  set("entries", S.experiment.entries ?? 3);
  set("seed", S.experiment.seed ?? 1);
  $("as_printed").checked = !!S.experiment.as_printed;
  $("fifo").checked = !!S.experiment.fifo;
  set("other", S.beside);
}

function gather() {
  const own = $("algorithm").value === "own";
  S.experiment = {
    algorithm: own ? $("own").value : $("algorithm").value,
    nodes: +$("nodes").value || 2,
    entries: +$("entries").value || 1,
    seed: +$("seed").value || 0,
    delay: $("delay").value,
    load: $("load").value,
  };
  if ($("topology").value) S.experiment.topology = $("topology").value;
  if (isFile(S.experiment.topology)) delete S.experiment.nodes;
  if ($("as_printed").checked) S.experiment.as_printed = true;
  if ($("fifo").checked) S.experiment.fifo = true;
  S.beside = $("other").value;
}

// A network from a file has its own number of nodes.
function isFile(topology) {
  return /\.(gml|graphml)$/i.test(topology || "");
}

function limits() {
  const one = about.algorithms.find((each) => each.name === $("algorithm").value);
  document.querySelector(".own").hidden = !!one;
  $("as_printed").disabled = !one?.as_printed;
  if (!one?.as_printed) $("as_printed").checked = false;
  if (one?.fifo) $("fifo").checked = true;
}

// -- begin -----------------------------------------------------------------------------------------------------

function connect() {
  $("setup").addEventListener("submit", (event) => {
    event.preventDefault();
    own();
  });
  $("algorithm").addEventListener("change", limits);
  $("own").addEventListener("input", () => (typed = $("own").value));
  $("first").addEventListener("click", () => stepTo(0));
  $("back").addEventListener("click", () => stepTo(S.frame - 1));
  $("forward").addEventListener("click", () => stepTo(S.frame + 1));
  $("last").addEventListener("click", () => stepTo(1e9));
  $("play").addEventListener("click", () => play());
  $("closer").addEventListener("click", () => zoom(1 / 1.5));
  $("farther").addEventListener("click", () => zoom(1.5));
  $("scrub").addEventListener("input", () => stepTo(+$("scrub").value));
  $("check").addEventListener("click", () => check());
  $("copy").addEventListener("click", async () => {
    if (!S.run) return say("There is no run yet.");
    try {
      await navigator.clipboard.writeText(location.href);
      say("The address is copied: opened with peerlock lab, it shows this run.", "good");
    } catch {
      say(location.href, "good");
    }
  });
  $("png").addEventListener("click", png);
  for (const each of document.querySelectorAll("[data-export]"))
    each.addEventListener("click", async () => {
      if (!S.run) return say("There is no run yet.");
      if (each.dataset.export === "itf" && S.run.itf) {
        save(JSON.stringify(S.run.itf, null, 1), `${S.run.about.algorithm}.itf.json`, "application/json");
        return;
      }
      const found = await ask("export", { ...S.run.plan, format: each.dataset.export });
      if (found) save(found.text, found.name);
    });
  $("file").addEventListener("change", async () => {
    const file = $("file").files[0];
    if (!file) return;
    const found = await ask("trace", await file.arrayBuffer(), true);
    $("file").value = "";
    if (found) show(found, `${file.name}, as it was recorded.`);
  });
  $("network").addEventListener("click", pointed);
  $("diagram-a").addEventListener("click", pointed);
  for (const tab of document.querySelectorAll("[role=tab]"))
    tab.addEventListener("click", () => turnTo(tab.dataset.view));
  $("theme").addEventListener("click", theme);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("lesson-next").addEventListener("click", () => lesson(S.lesson, S.step + 1));
  $("lesson-back").addEventListener("click", () => lesson(S.lesson, S.step - 1));
  $("lesson-close").addEventListener("click", () => lesson(null, 0));
  window.addEventListener("resize", paint);
  window.addEventListener("hashchange", () => open());
  document.addEventListener("keydown", (event) => {
    if (
      event.target.matches("input:not([type=range]), select, textarea") ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      $("keys").open ||
      !$("menu").hidden
    )
      return;
    if (event.key === " " && event.target.matches("button")) return;
    const keys = {
      " ": () => play(),
      ArrowRight: () => stepTo(S.frame + (event.shiftKey ? 10 : 1)),
      ArrowLeft: () => stepTo(S.frame - (event.shiftKey ? 10 : 1)),
      Home: () => stepTo(0),
      End: () => stepTo(1e9),
      "+": () => zoom(1 / 1.5),
      "-": () => zoom(1.5),
      c: () => check(),
      t: theme,
      "?": () => $("keys").showModal(),
      d: () => {
        const first = S.run && arrivals(S.run, S.frame)[0];
        if (first) act("deliver", first.id);
        else say(S.run ? "Nothing is under way at this moment." : "There is no run yet.");
      },
      1: () => turnTo("run"),
      2: () => turnTo("pair"),
      3: () => turnTo("lessons"),
      4: () => turnTo("live"),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });
}

function theme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  forgetColours();
  paint();
}

// The theme as the user left it, or as the system has it.
function firstTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = localStorage.getItem("theme") || (dark ? "dark" : "light");
}

async function open() {
  const said = address.read(location.hash);
  S.experiment = { algorithm: "ricart-agrawala", nodes: 4, entries: 3, seed: 1, ...said.experiment };
  if (isFile(S.experiment.topology) && said.experiment.nodes === undefined) delete S.experiment.nodes;
  S.acts = said.acts;
  S.frame = said.frame;
  S.beside = said.beside;
  S.lesson = said.lesson ?? null;
  S.step = said.step || 0;
  if (S.lesson !== null && !LESSONS[S.lesson]) {
    said.problems.push(`There is no lesson ${S.lesson}.`);
    S.lesson = null;
  }
  if (S.lesson !== null) S.step = Math.min(S.step, LESSONS[S.lesson].steps.length - 1);
  fill();
  limits();
  const bare = !location.hash; // a run that is shown writes its own address there
  await view(about.group && bare ? "live" : said.view);
  if (said.check) await check(true);
  const { finding } = about.trace || {};
  if (about.trace && bare) {
    history.replaceState(null, "", location.pathname + location.search); // a reload shows it again
    show(about.trace, finding ? `${finding}.` : "As it was recorded.", null, finding ? "bad" : "good");
  }
  if (said.problems.length) say(said.problems.join(" "));
}

async function begin() {
  firstTheme();
  $("setup-box").open = innerWidth > 600; // on a phone the picture comes first
  connect();
  const found = await ask("about");
  if (!found) return;
  about = found;
  for (const select of [$("algorithm"), $("other")]) {
    for (const one of about.algorithms) select.append(new Option(one.name, one.name));
  }
  $("algorithm").append(new Option("your own file …", "own"));
  await open();
  window.lab.ready = true;
}

window.lab = { S, LESSONS, go, draw, hits, ready: false, painted: 0 };
begin();
