// A film as the page draws it: messages, spans of waiting and of being inside, and all positions.
import { positions } from "./layout.js";

export class Run {
  constructor(film, plan) {
    this.plan = plan;
    this.about = film.about;
    this.frames = film.frames;
    this.ended = film.ended || "";
    this.refused = film.refused || {};
    this.itf = film.itf || null;
    this.states = film.variables || null; // a counterexample brings them along
    this.procedures = film.procedures || {};
    this.fixed = !plan; // a counterexample or a trace: to look at, not to act upon
    this.nodes = film.about.nodes;
    this.messages = [];
    this.spans = [];
    this.index();
  }

  index() {
    const open = new Map(); // "id>to" -> message
    const doing = new Map(); // node -> span
    const begin = (node, what, frame, t) => {
      const span = { node, what, t0: t, t1: Infinity, f0: frame, f1: Infinity };
      doing.set(node, span);
      this.spans.push(span);
    };
    const end = (node, frame, t) => {
      const span = doing.get(node);
      if (span) {
        span.t1 = t;
        span.f1 = frame;
        doing.delete(node);
      }
    };
    this.frames.forEach(([t, events], frame) => {
      for (const [what, node, id, other, words] of events) {
        if (what === "sent" || what === "broadcast") {
          for (const to of Array.isArray(other) ? other : [other]) {
            const message = { id, from: node, to, t0: t, t1: Infinity, f0: frame, f1: Infinity, words, lost: false };
            open.set(`${id}>${to}`, message);
            this.messages.push(message);
            this.nodes = Math.max(this.nodes, node, to);
          }
        } else if (what === "received" || what === "lost") {
          const message = open.get(`${id}>${node}`);
          if (message) {
            message.t1 = t;
            message.f1 = frame;
            message.lost = what === "lost";
            open.delete(`${id}>${node}`);
          }
        } else if (what === "requested") {
          end(node, frame, t);
          begin(node, "waiting", frame, t);
        } else if (what === "entered") {
          end(node, frame, t);
          begin(node, words === "read" ? "reading" : "inside", frame, t);
        } else if (what === "left") end(node, frame, t);
        else if (what === "crashed") {
          end(node, frame, t);
          begin(node, "crashed", frame, t);
        } else if (what === "paused") {
          end(node, frame, t);
          begin(node, "paused", frame, t);
        } else if (what === "resumed" || what === "restarted") end(node, frame, t);
      }
    });
    const took = this.messages.filter((m) => m.t1 !== Infinity).map((m) => m.t1 - m.t0);
    took.sort((a, b) => a - b);
    this.longest = took.at(-1) || 0;
    this.usual = took[took.length >> 1] || 0;
  }

  get last() {
    return this.frames.length - 1;
  }
  time(frame) {
    return this.frames[Math.max(0, Math.min(frame, this.last))][0];
  }

  // The last frame at or before a time.
  frameAt(t) {
    let low = 0,
      high = this.last;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle][0] <= t) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Messages sent from `t0` minus the longest delay up to `t1`, in the order of sending.
  between(t0, t1) {
    const from = this.firstSentAfter(t0 - this.longest);
    const found = [];
    for (let at = from; at < this.messages.length && this.messages[at].t0 <= t1; at++) {
      if (this.messages[at].t1 >= t0) found.push(this.messages[at]);
    }
    return found;
  }

  firstSentAfter(t) {
    let low = 0,
      high = this.messages.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.messages[middle].t0 < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  flight(frame) {
    const t = this.time(frame);
    return this.between(t, t).filter((m) => m.f0 <= frame && m.f1 > frame);
  }

  // What the nodes are doing after a frame: node -> span.
  doing(frame) {
    const found = new Map();
    for (const span of this.spans) if (span.f0 <= frame && span.f1 > frame) found.set(span.node, span);
    return found;
  }

  words(frame) {
    const parts = [];
    for (const [what, node, , other, words] of this.frames[frame]?.[1] || []) {
      const name = this.name(node);
      const to = Array.isArray(other) ? "all" : this.name(other);
      const said = {
        requested: `node ${name} asks`,
        received: `a message of ${other ? to : "?"} arrives at ${name}`,
        sent: `${name} sends ${words} to ${to}`,
        broadcast: `${name} sends ${words} to all`,
        entered: `node ${name} enters`,
        left: `node ${name} leaves`,
        timeout: `at node ${name} the time for ${words} is up`,
        lost: `a message to ${name} is lost`,
        crashed: `node ${name} dies`,
        restarted: `node ${name} starts again, with nothing remembered`,
        paused: `node ${name} is stopped`,
        resumed: `node ${name} goes on`,
      }[what];
      if (said) parts.push(said);
    }
    return parts.join("; ");
  }

  // Where a node stands in the picture of the network: -1 to 1, both ways.
  at(node) {
    this.places ??= positions(this.nodes, this.about.edges || []);
    return this.places[node];
  }

  name(node) {
    return this.about.labels?.[node] || `${node}`;
  }
}
