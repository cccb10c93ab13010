"""The report page in a real browser: drawn, switchable, readable, with no network."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

import fedmin
from fedmin.core.holdings import Holdings
from fedmin.core.ledger import Ledger, Line
from fedmin.reports.page import frame, page
from fedmin.runs.watch import current_page

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
def runs() -> dict[str, fedmin.Result]:
    problem = fedmin.Softmax(13, 3)
    return {
        f"step {step}": fedmin.minimize(problem, held(), fedmin.FedSGD(step), rounds=4)
        for step in (0.1, 0.5)
    }


def held() -> fedmin.Federation:
    wine = fedmin.data.load("wine").standardized()
    return fedmin.data.partition(wine, fedmin.data.IID(3))


@pytest.fixture(scope="module")
def html(runs) -> str:
    return page("Two <runs>", runs, held=dict.fromkeys(runs, Holdings.of(held())))


def seen(html: str, folder, *options: str) -> str:
    """The page as the browser has it, after its scripts."""
    path = folder / "page.html"
    path.write_text(html, "utf-8")
    return subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
            "--virtual-time-budget=5000", "--host-resolver-rules=MAP * ~NOTFOUND", *options,
            "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip


def look(html: str, folder, *options: str) -> dict[str, str]:
    # the page's policy is for what comes after it, and would refuse the probe there
    found = seen(html.replace("<head>", "<head>" + PROBE, 1), folder, *options)
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


# whatever runs, writes its number into the page
RUNS = "document.documentElement.dataset.ran{}=1"
HOSTILE = tuple(
    words.format(RUNS.format(k))
    for k, words in enumerate((
        "<script>{}</script>",
        "<img src=x onerror='{}'>",
        "\"'><svg onload='{}'></svg>",
        "</script></title></style></textarea><script>{}</script>",
        "<!--<script>--><img src=x onerror={}>",
    ))
)  # fmt: skip
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def ran(html: str, folder) -> set[str]:
    found = seen(html, folder)
    assert "</html>" in found  # it was there at all
    return set(re.findall(r"data-ran(\d)", re.search("<html[^>]*>", found)[0]))


def test_the_browser_would_run_it_and_the_policy_forbids_it(tmp_path):
    """What the next tests look for is there to be found, and the policy alone stops it."""
    html = frame("a page", "", "<p>".join(HOSTILE), None)
    assert ran(POLICY.sub("", html), tmp_path) >= {"0", "1", "2", "3"}
    assert ran(html, tmp_path) == set()


def test_nothing_of_a_folder_is_run(runs, tmp_path):
    """Every word of a result, hostile: escaped well enough that it would need no policy."""
    words = " ".join(HOSTILE)
    run = next(iter(runs.values()))
    line = Line(0, "down", {words: 8})
    hostile = replace(
        run,
        status=words, reason=words, history={**run.history, words: run.history["objective"]},
        ledger=Ledger([line], run.ledger.counts, [(line, 1)], [line], 3, [0]),
        certificate=replace(
            fedmin.certify(run.problem, held(), run.solution), notes=(words,), problem=words
        ),
    )  # fmt: skip
    sites = Holdings.of(held())._replace(names=[words] * 3, unit=words, counts=None)
    html = page(
        words, {words: hostile}, lead=words, held={words: sites}, made={words: words},
        sections=[(words, "")],
    )  # fmt: skip
    assert "Content-Security-Policy" in html
    assert ran(POLICY.sub("", html), tmp_path) == set()
    assert "objective F(x) against round" in seen(html, tmp_path)  # and its curves are drawn


def test_nothing_of_a_folders_name_is_run_while_waiting(tmp_path):
    html = current_page([tmp_path / " ".join(HOSTILE).replace("/", "|")])
    assert "Nothing to show yet" in html
    once = re.sub(r'<meta http-equiv="refresh"[^>]*>', "", POLICY.sub("", html))
    assert ran(once, tmp_path) == set()
