// A live group: its status, twice per second, and what has changed since.

import { $, make, token } from "./shared.js";

let socket = null;
let retry = 0;
let last = null; // what was said last, and when
let seen = new Date();

export function live(yes, group) {
  if (!yes) {
    if (socket) {
      const old = socket;
      socket = null;
      old.close();
    }
    clearTimeout(retry);
    return;
  }
  if (socket) return;
  if (!group) {
    $("live-state").textContent =
      "This lab shows no group: start it with peerlock lab --group NAME, on a host where a node of the group runs.";
    return;
  }
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const made = new WebSocket(`${scheme}://${location.host}/api/live?token=${encodeURIComponent(token())}`);
  socket = made;
  made.addEventListener("message", (event) => {
    const said = JSON.parse(event.data);
    if (said.error) {
      notNow(said.error);
      return;
    }
    show(withSilent(said.status));
  });
  made.addEventListener("close", () => {
    if (socket !== made) return;
    socket = null;
    notNow("The lab does not answer: is peerlock lab still running? Trying again …");
    retry = setTimeout(() => live(true, group), 2000);
  });
}

function notNow(sentence) {
  const before = last ? ` What is below was so at ${seen.toLocaleTimeString()}.` : "";
  $("live-state").textContent = sentence + before;
  $("view-live").classList.toggle("stale", Boolean(last));
}

// A member that does not answer may still hold its locks: unknown is not the same as released.
function withSilent(status) {
  if (!last) return status;
  const isMember = (node) => status.members.some((name) => node === name || node.startsWith(`${name} `));
  const silent = (holder) => status.silent.includes(holder.node) && isMember(holder.node);
  const locks = status.locks.map((lock) => ({ ...lock, holders: [...lock.holders] }));
  for (const old of last.locks) {
    const unknown = old.holders.filter(silent).map((holder) => ({ ...holder, unknown: true }));
    if (!unknown.length) continue;
    const lock = locks.find((each) => each.name === old.name);
    if (!lock) locks.push({ ...old, holders: unknown, waiters: [] });
    else lock.holders.push(...unknown.filter((one) => !lock.holders.some((known) => known.node === one.node)));
  }
  return { ...status, locks };
}

function show(status) {
  $("view-live").classList.remove("stale");
  const parts = [`Group ${status.group}, epoch ${status.epoch}, as ${status.node} sees it`];
  if (status.changing) parts.push("the view is changing");
  if (status.waits_for.length) parts.push(`waiting for ${status.waits_for.join(", ")}`);
  if (status.silent.length) parts.push(`no answer from ${status.silent.join(", ")}`);
  $("live-state").textContent = `${parts.join("; ")}.`;
  $("live-members").replaceChildren(...status.members.map((name) => make("li", { textContent: name })));
  const row = (cells, tag = "td") => make("tr", {}, ...cells.map((text) => make(tag, { textContent: text })));
  $("live-locks").replaceChildren(
    row(["lock", "algorithm", "held by", "fence", "for", "waiting", "longest"], "th"),
    ...status.locks.map((lock) =>
      row([
        lock.name,
        lock.algorithm,
        lock.holders.map((one) => (one.unknown ? `${one.node}: no answer` : one.node)).join(", ") || "-",
        lock.holders.map((one) => one.fence).join(", "),
        lock.holders.map((one) => (one.unknown ? "?" : `${one.seconds.toFixed(1)} s`)).join(", "),
        lock.waiters.map((one) => one.node).join(", "),
        lock.waiters.length ? `${lock.waiters[0].seconds.toFixed(1)} s` : "",
      ]),
    ),
  );
  const counted = [
    ["grants", status.grants],
    ["messages sent an entry", status.grants ? (status.messages / status.grants).toFixed(2) : "-"],
    ["losses", status.losses],
  ];
  $("live-counters").replaceChildren(
    ...counted.flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: `${value}` })]),
  );
  for (const text of news(status))
    $("live-log").prepend(make("li", { textContent: `${new Date().toLocaleTimeString()}  ${text}` }));
  while ($("live-log").children.length > 200) $("live-log").lastChild.remove();
  last = status;
  seen = new Date();
}

// What has happened since the last status, in the only order in which it can have happened.
function news(status) {
  if (!last) return [];
  const found = [];
  if (last.node === status.node && status.losses > last.losses)
    found.push(`${status.node} has lost ${status.losses - last.losses} of its locks`);
  if (last.epoch !== status.epoch) found.push(`epoch ${status.epoch}: ${status.members.join(", ")}`);
  const held = (all) =>
    new Map(
      all.locks.flatMap((lock) => lock.holders.map((one) => [`${lock.name} ${one.node} ${one.fence}`, [lock, one]])),
    );
  const [now, old] = [held(status), held(last)];
  for (const [key, [lock, one]] of old) if (!now.has(key)) found.push(`${one.node} has ${lock.name} no more`);
  for (const [key, [lock, one]] of now)
    if (!old.has(key)) found.push(`${one.node} has ${lock.name}, fence ${one.fence}`);
  return found;
}
