"""What a viewer sees, asked of the browser: a text in the document may be hidden, covered, cut or too pale."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as NotInTime

SEEN_WITHIN: Final = 20_000
"""Milliseconds."""
HIDDEN_TEXT: Final = """text => {
  const plain = one => one.textContent.replace(/\\s+/g, " ");
  const holds = one => plain(one).includes(text) && one.closest("script, style, template, .only-read") === null;
  const holders = [...document.querySelectorAll("body *")].filter(one => holds(one) && ![...one.children].some(holds));
  if (!holders.length) return ["it is not in the document"];
  const light = color => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
    const linear = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const faults = holders.map(one => {
    one.scrollIntoView({ block: "center", inline: "nearest" });
    const range = document.createRange();
    range.selectNodeContents(one);
    const box = [...range.getClientRects()].find(rect => rect.width > 0 && rect.height > 0);
    const style = getComputedStyle(one);
    if (!box || style.visibility !== "visible") return "it is not displayed";
    const isInside = box.left >= 0 && box.top >= 0 && box.right <= innerWidth + 1 && box.bottom <= innerHeight + 1;
    if (!isInside) return "it is outside";
    const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (!one.contains(hit)) return `it is covered by ${hit?.outerHTML.slice(0, 100)}`;
    let below = one;
    while (below && /, 0\\)$/.test(getComputedStyle(below).backgroundColor)) below = below.parentElement;
    const background = getComputedStyle(below ?? document.documentElement).backgroundColor;
    const [dark, bright] = [light(style.color), light(background)].sort((one, other) => one - other);
    const contrast = (bright + 0.05) / (dark + 0.05);
    return contrast < 4.5 ? `its contrast is ${contrast.toFixed(1)}` : "";
  });
  return faults.includes("") ? [] : faults;
}"""


def assert_seen(page: Page, text: str) -> None:
    """Wait until a viewer can read a text: displayed, in the window, not covered, and in contrast to its ground."""
    try:
        page.wait_for_function(f"text => ({HIDDEN_TEXT})(text).length === 0", arg=text, timeout=SEEN_WITHIN)
    except NotInTime:
        raise AssertionError(f"{text!r} on {page.url}: {page.evaluate(HIDDEN_TEXT, text)}") from None
