// One lesson per paper: short steps over a live model, each with one thing to try.

export const LESSONS = [
  {
    title: "Ricart and Agrawala 1981: permission from everybody",
    about: "2(N-1) messages per entry, and no node in charge.",
    experiment: { algorithm: "ricart-agrawala", nodes: 3, entries: 1, seed: 3 },
    steps: [
      {
        words: "Three nodes share one critical section. No node is in charge, and they can only send messages.",
        frame: 0,
        try: "press → to take a step.",
      },
      {
        words:
          "Node 1 wants to enter. It chooses a number, one more than the highest it has seen, and asks both others with it.",
        frame: 1,
        try: "look at our_sequence_number in its row.",
      },
      {
        words: "Node 2 asks at the same time. It has seen no other number, so it chooses 1 as well.",
        frame: 2,
        try: "find the four messages under way.",
      },
      {
        words: "Node 3 asks, too. All three numbers are 1: a tie, which the smaller node number wins.",
        frame: 3,
        try: "click a message in the network: it can arrive now, later or never.",
      },
      {
        words:
          "The request of node 1 arrives at node 3, which is asking with the same number. Node 1 comes before node 3, so node 3 replies at once.",
        frame: 4,
        try: "see that REPLY under way.",
      },
      {
        words:
          "The request of node 2 arrives at node 1. Node 1 comes first, so it says nothing yet: it defers its reply.",
        frame: 5,
        try: "find node 2 in node 1's deferred set.",
      },
      {
        words:
          "Silence is not permission. Node 2 waits for two replies, and one of them will come only when node 1 is done.",
        frame: 8,
        try: "look at awaited: which node waits for which?",
      },
      { words: "Node 1 has both replies: it enters.", frame: 12, try: "step back and forth over this moment." },
      {
        words: "It leaves, and now sends what it had deferred: two replies.",
        frame: 13,
        try: "count: 2(N-1) is four messages per entry.",
      },
      {
        words:
          "Node 2 is next, then node 3. They enter in the order of their numbers, in whatever order messages arrived.",
        frame: 15,
        try: "choose another seed and run it again.",
      },
      {
        words: "Each node was inside once, never two at a time, with four messages per entry.",
        frame: "end",
        try: "go back to the start (Home) and press c: the checker looks at every order of arrival.",
      },
      {
        words:
          "The printed text is wrong about dead nodes. A node that answers ARE_YOU_THERE with a REPLY may have replied already. The surplus REPLY counts for a later request, and two nodes are inside, though no message is late and no node is dead.",
        experiment: { algorithm: "ricart-agrawala-failures", as_printed: true, nodes: 2, entries: 2, seed: 1 },
        frame: 0,
        check: true,
        try: "open the counterexample; then untick “as printed”, run it, and ask again.",
      },
    ],
  },
  {
    title: "Carvalho and Roucairol 1983: a permission is kept",
    about: "Between 0 and 2(N-1) messages per entry: a permission that was given stays.",
    experiment: { algorithm: "carvalho-roucairol", nodes: 3, entries: 2, seed: 2, load: "nodes:1,2" },
    steps: [
      {
        words: "The same idea with one change: a permission that was given stays good until it is asked back.",
        frame: 0,
        try: "press → .",
      },
      { words: "Node 1 asks both others, as in Ricart and Agrawala's algorithm.", frame: 1, try: "see which nodes it asks." },
      {
        words: "Node 2 asks as well. Node 3 wants nothing in this run.",
        frame: 2,
        try: "find node 3's row: it is idle.",
      },
      {
        words: "Node 1 comes first, so it keeps node 2 waiting.",
        frame: 3,
        try: "look at what node 1 remembers of node 2.",
      },
      { words: "Node 2 replies to node 1.", frame: 4, try: "is node 2 still waiting itself?" },
      {
        words: "Node 3 replies to both, at once: it does not compete.",
        frame: 6,
        try: "see both replies of node 3.",
      },
      { words: "Node 1 has all permissions and enters.", frame: 8, try: "count the messages so far." },
      {
        words: "It leaves and wants to enter again, at once. It asks node 2 only: node 3's permission is still good.",
        frame: 9,
        try: "compare with the first time: one request instead of two.",
      },
      { words: "Node 2 enters. It has the permission of node 1 now, and of node 3.", frame: 11, try: "step on." },
      {
        words: "It leaves, asks again and enters at once, without any message: it has every permission.",
        frame: 12,
        try: "look at the counter: this entry cost nothing.",
      },
      {
        words:
          "Node 1's request arrives and takes the permission back. From now on these two nodes ask only each other, however large the group.",
        frame: "end",
        try: "set nodes to 8 and entries to 40, and run it again: how many messages per entry?",
      },
      {
        words:
          "The text holds, and one figure of its table does not: Note 4 of Table I, the waiting times, should read N/2 and more. (docs/papers has the computation.)",
        frame: "end",
        check: false,
        try: "see it beside Ricart and Agrawala's: the tab “Side by side”.",
      },
    ],
  },
  {
    title: "Suzuki and Kasami 1985: one privilege that wanders",
    about: "N messages per entry, or none at all.",
    experiment: { algorithm: "suzuki-kasami-a", nodes: 3, entries: 1, seed: 1 },
    steps: [
      {
        words: "There is one PRIVILEGE. The node that has it may enter. Node 1 has it at the start.",
        frame: 0,
        try: "find have_privilege in the table.",
      },
      { words: "Node 1 enters without a message: it has the privilege.", frame: 1, try: "look at the counters." },
      {
        words: "Node 2 wants it and does not know where it is. So it asks every other node, once.",
        frame: 2,
        try: "see its number: it counts the requests of node 2, from 0.",
      },
      {
        words: "Node 3 asks, too.",
        frame: 3,
        try: "four requests are under way, two of them to node 1, which has the privilege.",
      },
      {
        words: "Node 1 leaves. It has heard of no node that waits, and keeps the privilege.",
        frame: 4,
        try: "could it enter again now? For how many messages?",
      },
      {
        words: "The request of node 3 arrives where the privilege is, so the privilege is passed on at once.",
        frame: 5,
        try: "deliver the request of node 2 first instead: go one step back, and click it.",
      },
      {
        words: "A request arrives at a node without the privilege. It only writes down the number, in RN.",
        frame: 6,
        try: "see which value has changed.",
      },
      {
        words:
          "The other request of node 2 comes to node 1 too late: the privilege has gone. Is node 2 lost? No: node 3 was asked as well.",
        frame: 7,
        try: "step once: it arrives at node 3, which writes the number of node 2 down in its RN.",
      },
      {
        words:
          "Node 3 has the privilege and enters. With it came LN: the number of the last request of each node that was granted.",
        frame: 9,
        try: "compare RN[2] and LN[2] at node 3. (The first number of each would be that of a node 0.)",
      },
      {
        words: "It leaves. RN[2] = LN[2] + 1: node 2 waits. So the privilege goes there.",
        frame: 10,
        try: "that comparison is the whole algorithm.",
      },
      {
        words: "Each node was inside. An entry took three messages with three nodes, and none where the privilege was.",
        frame: "end",
        try: "go to step 10, kill node 2, then let node 1 ask: it waits in vain, for the privilege died with node 2.",
      },
      {
        words:
          "Numbers grow for ever. Algorithm B lets them come round, and its printed text fails: a holder that enters again waits for replies that no node will send.",
        experiment: { algorithm: "suzuki-kasami-b", as_printed: true, nodes: 2, entries: 4, seed: 1, load: "closed" },
        frame: 0,
        check: true,
        try: "open the counterexample and step through it.",
      },
    ],
  },
  {
    title: "Dijkstra 1983: a token on a ring",
    about: "Signals one way, the token the other.",
    experiment: { algorithm: "dijkstra-ring", nodes: 4, entries: 1, seed: 1, load: "nodes:3", topology: "ring" },
    steps: [
      {
        words: "Four machines form a ring. There is one token, at node 1. Only its holder may be in its critical section.",
        frame: 0,
        try: "find holds_token.",
      },
      {
        words: "Node 3 wants to enter. It sends a signal to its right neighbour: the token is wanted on the left.",
        frame: 1,
        try: "which way do signals travel?",
      },
      {
        words:
          "Node 4 does not have it. It becomes black, remembers that its left neighbour waits, and sends the signal on.",
        frame: 2,
        try: "find black in its row.",
      },
      {
        words: "The signal reaches node 1, which has the token and does not need it: the token sets out, to the left.",
        frame: 3,
        try: "follow the token: it is drawn in another colour.",
      },
      {
        words:
          "Node 4 gets the token, does not want it itself, and passes it on: it was black, so a node on its left waits.",
        frame: 4,
        try: "is it still black?",
      },
      {
        words: "Node 3 has the token and enters.",
        frame: 5,
        try: "count the messages: two signals, two times the token.",
      },
      {
        words: "It leaves, and keeps the token: it knows of no node that wants it.",
        frame: 6,
        try: "let node 3 ask again: select request in its row.",
      },
      {
        words:
          "A machine never sends two signals for one token. However many machines wait on its left, it is black or it is not.",
        experiment: { load: "closed", entries: 2 },
        frame: 8,
        try: "step through it: the number of signals stays small.",
      },
      {
        words:
          "When all want it all the time, the token goes round and stops at each. That is close to two messages per entry, whatever the size of the ring.",
        experiment: { load: "closed", entries: 20, nodes: 6 },
        frame: "end",
        try: "set nodes to 12, run it again and look at the messages per entry.",
      },
      {
        words: "The proof of the paper describes all states that a ring can be in, as words over a small alphabet.",
        experiment: { load: "closed", entries: 2 },
        frame: 12,
        try: "docs/papers/dijkstra-1983.md has the exact language, computed.",
      },
      {
        words: "Nothing in the text had to be repaired.",
        experiment: { load: "closed", entries: 1, nodes: 3 },
        frame: 0,
        check: true,
        try: "kill the node that has the token: the ring knows no way out.",
      },
    ],
  },
  {
    title: "Helary, Plouzeau and Raynal 1986: any network",
    about: "No node knows the network, only its own neighbours.",
    experiment: {
      algorithm: "helary-plouzeau-raynal",
      nodes: 4,
      entries: 1,
      seed: 1,
      topology: "line",
      load: "nodes:4",
    },
    steps: [
      {
        words: "Four nodes form a line. Each knows its neighbours and nothing else, not even how many nodes there are.",
        frame: 0,
        try: "look at the network.",
      },
      {
        words: "Node 4 wants the token and asks its only neighbour. The request carries its origin and a time.",
        frame: 1,
        try: "see the message under way.",
      },
      {
        words:
          "Node 3 does not have the token. It writes the request down and sends it on to its other neighbours.",
        frame: 2,
        try: "what does node 3 remember?",
      },
      {
        words: "Node 2 does the same. The request floods the network.",
        frame: 3,
        try: "in a line there is one way; in a ring there would be two.",
      },
      {
        words:
          "Node 1 has the token and does not need it. The token sets out for node 4, whose name it carries; each node on the way knows from where the request came.",
        frame: 4,
        try: "follow it.",
      },
      {
        words: "Node 2 passes it on to the neighbour from which node 4's request came.",
        frame: 5,
        try: "which message made node 2 know that?",
      },
      { words: "Node 3 passes it on, too.", frame: 6, try: "count: three requests, and three times the token so far." },
      {
        words:
          "Node 4 enters. n-1 requests, and the token over the d links between them: for a tree the paper claims n-1 + d.",
        frame: 7,
        try: "see the counters.",
      },
      {
        words: "In a ring a request goes both ways and meets itself.",
        experiment: { topology: "ring", load: "closed", entries: 1 },
        frame: 6,
        try: "find a node that gets the same request twice.",
      },
      {
        words: "Clocks ride on requests, so that an old request is not passed over for ever.",
        experiment: { topology: "ring", load: "closed", entries: 2 },
        frame: 30,
        try: "read req_array: origin, (time, neighbour it came from). Which request is the oldest?",
      },
      {
        words: "The algorithm runs on any connected network, here on a random one.",
        experiment: { topology: "random", nodes: 8, load: "closed", entries: 1 },
        frame: 30,
        try: "give a GML file as the network: a real one.",
      },
      {
        words:
          "The printed text is wrong where it compares origins before times. Node 4 asked at the very start and has been passed over 24 times by now; nothing in the text bounds that. The repaired form compares times first, as the proof does.",
        experiment: { as_printed: true, nodes: 4, topology: "line", load: "closed", entries: 12, seed: 28 },
        frame: 116,
        try: "zoom out (−) and follow the dashed line of node 4; then untick “as printed” and run it again.",
      },
    ],
  },
];
