"""How long a picture of the lab takes while somebody scrubs: a hundred nodes, twenty thousand steps, in a real browser.

python scripts/bench_lab.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from playwright.sync_api import sync_playwright

SCRUB = """async () => {
  const times = [], last = window.lab.S.run.last;
  for (let at = 0; at < 200; at++) {
    window.lab.S.frame = Math.round((at * 7919) % last);
    window.lab.S.clock = window.lab.S.run.time(window.lab.S.frame);
    window.lab.draw();
    times.push(window.lab.painted);
    await new Promise(requestAnimationFrame);
  }
  return times;
}"""


def main() -> None:
    lab = subprocess.Popen([sys.executable, "-m", "peerlock", "lab", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert lab.stdout is not None
        address = lab.stdout.readline().split()[4]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 1000}, bypass_csp=True)
            for algorithm in ("suzuki-kasami-a", "ricart-agrawala", "dijkstra-ring"):
                page.goto("about:blank")
                page.goto(f"{address}#algorithm={algorithm}&nodes=100&entries=40&seed=1")
                page.wait_for_function("window.lab && window.lab.ready")
                frames = page.evaluate("window.lab.S.run.last + 1")
                times = sorted(page.evaluate(SCRUB))
                print(
                    f"{algorithm}: 100 nodes, {frames:,} steps: a picture takes {statistics.median(times):.1f} ms, "
                    f"99 % of them {times[int(len(times) * 0.99)]:.1f} ms, the slowest {times[-1]:.1f} ms"
                )
            browser.close()
    finally:
        lab.terminate()
        lab.wait()


if __name__ == "__main__":
    main()
