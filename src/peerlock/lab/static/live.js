// A group as it lives: what its nodes say, twice a second, and what has changed since.

import { $, make } from "./shared.js";

let socket = null,
  last = null,
  retry = 0;

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
  const token = new URLSearchParams(location.search).get("token");
  const made = new WebSocket(
    `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/live${token ? `?token=${encodeURIComponent(token)}` : ""}`,
  );
  socket = made;
  made.addEventListener("message", (event) => {
    const said = JSON.parse(event.data);
    if (said.error) {
      $("live-state").textContent = said.error;
      return;
    }
    show(said.status);
  });
  made.addEventListener("close", () => {
    if (socket !== made) return;
    socket = null;
    $("live-state").textContent = "The lab does not answer: is peerlock lab still running? Trying again …";
    retry = setTimeout(() => live(true, group), 2000);
  });
}

function show(status) {
  $("live-state").textContent =
    `Group ${status.group}, epoch ${status.epoch}, as ${status.node} sees it${status.changing ? "; the view is changing" : ""}${status.waits_for.length ? `; waiting for ${status.waits_for.join(", ")}` : ""}${status.silent.length ? `; no answer from ${status.silent.join(", ")}` : ""}.`;
  $("live-members").replaceChildren(...status.members.map((name) => make("li", { textContent: name })));
  const row = (cells, tag = "td") => {
    const made = document.createElement("tr");
    made.append(...cells.map((text) => make(tag, { textContent: text })));
    return made;
  };
  $("live-locks").replaceChildren(
    row(["lock", "algorithm", "held by", "fence", "for", "waiting", "longest"], "th"),
    ...status.locks.map((lock) =>
      row([
        lock.name,
        lock.algorithm,
        lock.holders.map((one) => one.node).join(", ") || "-",
        lock.holders.map((one) => one.fence).join(", "),
        lock.holders.map((one) => `${one.seconds.toFixed(1)} s`).join(", "),
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
  const news = [];
  if (last && last.node === status.node && status.losses > last.losses)
    news.push(`${status.node} has lost ${status.losses - last.losses} of its locks`);
  if (last && last.epoch !== status.epoch) news.push(`epoch ${status.epoch}: ${status.members.join(", ")}`);
  const held = (all) =>
    new Map(
      all.locks.flatMap((lock) =>
        lock.holders.map((one) => [`${lock.name} ${one.node} ${one.fence}`, [lock.name, one.node, one.fence]]),
      ),
    );
  const now = held(status),
    old = last ? held(last) : now;
  for (const [key, [lock, node, fence]] of now) if (!old.has(key)) news.push(`${node} has ${lock}, fence ${fence}`);
  for (const [key, [lock, node]] of old) if (!now.has(key)) news.push(`${node} has ${lock} no more`);
  for (const text of news)
    $("live-log").prepend(make("li", { textContent: `${new Date().toLocaleTimeString()}  ${text}` }));
  while ($("live-log").children.length > 200) $("live-log").lastChild.remove();
  last = status;
}
