"""The report page in a real browser: drawn, switchable, readable, without any network."""

import re
import shutil
import subprocess

import pytest

import fedmin
from fedmin.core.holdings import Holdings
from fedmin.reports.page import page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here: apt-get install chromium, then this is tested too"
)

# presses every switch and every name in the legend and writes what is to be seen into the page
PROBE = """
<script>
const said = [];
window.addEventListener("error", (e) => said.push("error " + e.message));
window.addEventListener("load", () => setTimeout(() => {
  const curves = () => document.querySelectorAll("#charts svg path[stroke]").length;
  const labels = () =>
    [...document.querySelectorAll("#charts svg")].map((s) => s.getAttribute("aria-label"));
  said.push("curves " + curves());
  said.push("labels " + labels().join(" | "));
  document.querySelector("#legend button").click();
  said.push("hidden " + curves());
  document.querySelector("#legend button").click();
  said.push("shown " + curves());
  const buttons = [...document.querySelectorAll("#charts button")];
  buttons.find((b) => b.textContent.trim() === "s").click();
  said.push("switched " + labels().join(" | "));
  const plot = document.querySelector("#charts svg");
  const box = plot.getBoundingClientRect();
  plot.parentElement.dispatchEvent(new PointerEvent("pointermove",
    { clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true }));
  said.push("width " + document.documentElement.scrollWidth + " of " + window.innerWidth);
  said.push("background " + getComputedStyle(document.body).backgroundColor);
  const out = document.createElement("pre");
  out.id = "said";
  out.textContent = said.join("\\n");
  document.body.append(out);
}, 50));
</script>
"""


@pytest.fixture(scope="module")
def html() -> str:
    wine = fedmin.data.load("wine").standardized()
    federation = fedmin.data.partition(wine, fedmin.data.IID(3))
    problem = fedmin.Softmax(13, 3)
    runs = {
        f"step {step}": fedmin.minimize(problem, federation, fedmin.FedSGD(step), rounds=4)
        for step in (0.1, 0.5)
    }
    return page("Two <runs>", runs, held=dict.fromkeys(runs, Holdings.of(federation)))


def look(html: str, folder, *options: str) -> dict[str, str]:
    path = folder / "page.html"
    path.write_text(html.replace("</body>", PROBE + "</body>"), "utf-8")
    found = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
            "--virtual-time-budget=5000", "--host-resolver-rules=MAP * ~NOTFOUND", *options,
            "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    said = re.search(r'<pre id="said">(.*?)</pre>', found, re.DOTALL)
    assert said, found[-2000:]
    return dict(line.split(" ", 1) for line in said[1].splitlines())


def test_the_page_is_drawn_and_answers(html, tmp_path):
    said = look(html, tmp_path, "--window-size=1200,900")
    assert "error" not in said
    assert int(said["curves"]) == 8  # two runs, objective and accuracy, against rounds and bytes
    assert int(said["hidden"]) == 4
    assert said["shown"] == said["curves"]
    assert said["labels"].startswith("objective F(x) against round | ")
    assert "against seconds" in said["switched"]


def test_the_page_fits_a_phone(html, tmp_path):
    width, of = look(html, tmp_path, "--window-size=500,900")["width"].split(" of ")
    assert int(width) <= int(of)


def test_the_page_is_dark_in_the_dark(html, tmp_path):
    light, dark = (
        look(html, tmp_path, f"--blink-settings=preferredColorScheme={k}")["background"]
        for k in (1, 0)
    )
    brightness = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (light, dark)]
    assert brightness[0] > 600 > 200 > brightness[1]
