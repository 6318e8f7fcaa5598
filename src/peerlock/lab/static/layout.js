// Where the nodes of a network stand: on a circle, or with short lines and the nodes apart.

export function positions(nodes, edges) {
  const found = [null];
  for (let node = 1; node <= nodes; node++) {
    const angle = (2 * Math.PI * (node - 1)) / nodes - Math.PI / 2;
    found.push([Math.cos(angle), Math.sin(angle)]);
  }
  if (!edges.length || isRing(nodes, edges)) return found;
  return spread(found, nodes, edges);
}

function isRing(nodes, edges) {
  const degree = new Array(nodes + 1).fill(0);
  for (const [a, b] of edges) (degree[a]++, degree[b]++);
  return edges.length === nodes && edges.every(([a, b]) => b === a + 1 || (a === 1 && b === nodes));
}

// Fruchterman and Reingold 1991: every two nodes repel, every line attracts, and steps shrink.
function spread(at, nodes, edges) {
  const ideal = 1.6 / Math.sqrt(nodes);
  const rounds = Math.max(30, Math.min(300, Math.round(2e7 / (nodes * nodes))));
  for (let round = 0; round < rounds; round++) {
    const push = at.map(() => [0, 0]);
    const pull = (a, b, force) => {
      const dx = at[a][0] - at[b][0] || 1e-3 * (a - b);
      const dy = at[a][1] - at[b][1];
      const far = Math.hypot(dx, dy) || 1e-6;
      const by = force(far) / far;
      push[a][0] += dx * by;
      push[a][1] += dy * by;
      push[b][0] -= dx * by;
      push[b][1] -= dy * by;
    };
    for (let a = 1; a <= nodes; a++) for (let b = a + 1; b <= nodes; b++) pull(a, b, (far) => (ideal * ideal) / far);
    for (const [a, b] of edges) pull(a, b, (far) => -(far * far) / ideal);
    const warmth = 0.2 * (1 - round / rounds) + 0.002;
    for (let node = 1; node <= nodes; node++) {
      const [dx, dy] = push[node];
      const far = Math.hypot(dx, dy) || 1e-6;
      const by = Math.min(far, warmth) / far;
      at[node] = [at[node][0] + dx * by, at[node][1] + dy * by];
    }
  }
  return fitted(at);
}

function fitted(at) {
  const box = (which) => {
    const all = at.slice(1).map((point) => point[which]);
    return [Math.min(...all), Math.max(...all)];
  };
  const scale = ([low, high], value) => (high > low ? (2 * (value - low)) / (high - low) - 1 : 0);
  const [wide, tall] = [box(0), box(1)];
  return at.map((point) => point && [scale(wide, point[0]), scale(tall, point[1])]);
}
