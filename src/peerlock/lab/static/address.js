// The whole run in the address: what to run, what was done to it, and the frame that is shown.

const TEXT = ["algorithm", "topology", "delay", "load", "hold"],
  NUMBERS = ["nodes", "entries", "seed", "home"],
  FLAGS = ["as_printed", "fifo"];
export const VERBS = [
  "deliver",
  "delay",
  "lose",
  "drop",
  "request",
  "release",
  "fire",
  "crash",
  "restart",
  "pause",
  "resume",
];

export function write({ view, experiment, acts, frame, beside, lesson, step, check }) {
  const parts = [];
  const put = (key, value) =>
    parts.push(
      `${key}=${encodeURIComponent(value).replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/")}`,
    );
  if (view && view !== "run") put("view", view);
  if (lesson !== undefined && lesson !== null) {
    put("lesson", lesson);
    put("step", step || 0);
    return "#" + parts.join("&");
  }
  for (const key of [...TEXT, ...NUMBERS])
    if (experiment?.[key] !== undefined && experiment[key] !== null && experiment[key] !== "")
      put(key, experiment[key]);
  for (const key of FLAGS) if (experiment?.[key]) put(key, "yes");
  if (acts?.length) put("acts", acts.map((act) => `${act.at}.${act.verb}.${act.what}`).join(","));
  if (beside) put("beside", beside);
  if (frame) put("at", frame);
  if (check) put("check", "yes");
  return "#" + parts.join("&");
}

export function read(hash) {
  const found = { view: "run", experiment: {}, acts: [], frame: 0, beside: "", problems: [] };
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const [key, raw = ""] = part.split("=", 2);
    let value;
    try {
      value = decodeURIComponent(raw);
    } catch {
      found.problems.push(`${key} is not written as an address is.`);
      continue;
    }
    if (TEXT.includes(key)) found.experiment[key] = value;
    else if (NUMBERS.includes(key)) {
      if (/^\d+$/.test(value)) found.experiment[key] = +value;
      else found.problems.push(`${key} must be a whole number, not ${value}.`);
    } else if (FLAGS.includes(key)) found.experiment[key] = value === "yes";
    else if (key === "at" || key === "step" || key === "lesson") {
      if (/^\d+$/.test(value)) found[key === "at" ? "frame" : key] = +value;
      else found.problems.push(`${key} must be a whole number, not ${value}.`);
    } else if (key === "beside") found.beside = value;
    else if (key === "check") found.check = value === "yes";
    else if (key === "view") {
      if (["run", "pair", "lessons", "live"].includes(value)) found.view = value;
      else found.problems.push(`There is no view ${value}.`);
    } else if (key === "acts") {
      for (const text of value.split(",").filter(Boolean)) {
        const [at, verb, what] = text.split(".");
        if (/^\d+$/.test(at) && VERBS.includes(verb) && /^\d+$/.test(what || ""))
          found.acts.push({ at: +at, verb, what: +what });
        else found.problems.push(`${text} is nothing that can be done to a run.`);
      }
    } else found.problems.push(`The address says ${key}, which means nothing here.`);
  }
  if (found.lesson !== undefined) found.view = "lessons";
  return found;
}
