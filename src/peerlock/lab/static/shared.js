// Shared by all parts of the page: what is shown, questions to the server, messages to the user.

export const $ = (id) => document.getElementById(id);

export const S = {
  view: "run",
  experiment: {},
  acts: [],
  frame: 0,
  run: null,
  other: null, // the run beside it
  beside: "",
  playing: false,
  clock: 0,
  span: 12, // how much time the diagram shows
  lesson: null,
  step: 0,
  state: null, // what the table of nodes shows
  again: () => {}, // shoot once more what could not be shot
};

export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function button(text, title, act) {
  const made = make("button", { type: "button", textContent: text, title });
  made.addEventListener("click", act);
  return made;
}

// The tone is "good", "bad", or "": something to know.
export function say(sentence, tone = "", ...more) {
  const box = $("message");
  box.hidden = !sentence;
  box.replaceChildren(sentence || "", ...more.flatMap((each) => [" ", each]));
  box.className = tone;
}

// A list is made anew: the element at the place of the one with the focus gets the focus.
export function keepingFocus(id, change) {
  const box = $(id);
  const all = () => [...box.querySelectorAll("button")];
  const at = all().indexOf(document.activeElement);
  change();
  if (at >= 0) all()[Math.min(at, all().length - 1)]?.focus({ preventScroll: true });
}

// The token comes once with the address and is kept for this origin alone. A cookie would go to all
// ports of the host.
const given = new URLSearchParams(location.search).get("token");
if (given) {
  localStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname + location.hash); // an address is to be shared
}
export const token = () => localStorage.getItem("token") || "";

let waiting = 0;
// A question that takes a while is shown as such.
export async function ask(what, body, raw = false) {
  waiting++;
  const late = setTimeout(() => ($("busy").hidden = false), 500);
  try {
    return await asked(what, body, raw);
  } finally {
    clearTimeout(late);
    if (!--waiting) $("busy").hidden = true;
  }
}

async function asked(what, body, raw) {
  let answer;
  try {
    answer = await fetch(`api/${what}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { "x-token": token() },
      body: body === undefined || raw ? body : JSON.stringify(body),
    });
  } catch {
    say("The lab does not answer: is peerlock lab still running? Start it again, then reload this page.");
    return null;
  }
  let found = null;
  try {
    found = await answer.json();
  } catch {
    // an answer that is not JSON has no sentence
  }
  if (found?.agree) {
    const agree = async () => (await ask("agree", { file: found.agree })) && S.again();
    say(found.error, "", button("run it", "", agree));
    return null;
  }
  if (!answer.ok || found === null) {
    say(found?.error || `The lab answered with an error (${answer.status}). Its terminal says more.`);
    return null;
  }
  return found;
}
