"""What a viewer sees, asked of the browser: a text in the document may be hidden, covered, cut or too pale."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Error, Page

from peerd.testing import eventually

SEEN_WITHIN: Final = 20
"""Seconds."""
MOST_SHIFT: Final = 1
"""Pixels that boxes differ by rounding."""
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
LAYOUT: Final = """most => {
  const found = [];
  const isShown = one => one.checkVisibility({ visibilityProperty: true }) && one.closest(".only-read, .skip") === null;
  const excess = document.documentElement.scrollWidth - innerWidth;
  if (excess > 0) found.push(`${excess} pixels too wide`);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (!node.data.trim() || !isShown(node.parentElement)) continue;
    const svg = node.parentElement.closest("svg");
    if (svg) {
      range.selectNodeContents(node);
      const [text, whole] = [range, svg].map(one => one.getBoundingClientRect());
      const isOutside = text.left < whole.left - most || text.right > whole.right + most;
      if (text.height < 11) found.push(`tiny: ${node.data}`);
      if (isOutside && getComputedStyle(svg).overflow !== "visible") found.push(`cut: ${node.data}`);
      continue;
    }
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}]{2,}/gu)) {
      const whole = /\\S*$/.exec(node.data.slice(0, word.index))[0] + /^\\S*/.exec(node.data.slice(word.index))[0];
      if (whole.length > 24) continue; // such as a path or an id, which may be broken anywhere
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(rect => Math.round(rect.top)));
      if (lines.size > 1) found.push(`broken: ${word[0]}`);
    }
  }
  for (const one of document.body.querySelectorAll("*")) {
    if (!isShown(one) || one.closest("svg")) continue;
    const style = getComputedStyle(one);
    const isCut = ["hidden", "clip"].includes(style.overflowX) && one.scrollWidth > one.clientWidth + most;
    const isThin = one.matches("input:not([type=checkbox]), select") && one.clientWidth < 48;
    if (isCut || isThin) found.push(`${isCut ? "cut" : "thin"}: ${one.outerHTML.slice(0, 100)}`);
  }
  return found;
}"""


def assert_seen(page: Page, text: str) -> None:
    """Wait until a viewer can read a text: displayed, in the window, not covered, and in contrast to its ground.

    The browser is asked again and again: a page without JavaScript runs no timer and no animation frame, so there
    `Page.wait_for_function` looks only once, maybe at a document that has not been received as a whole.
    """

    def is_seen() -> bool:
        try:
            hidden = page.evaluate(HIDDEN_TEXT, text)
        except Error as error:  # the page was replaced meanwhile
            raise AssertionError(error) from error
        assert hidden == []
        return True

    eventually(is_seen, timeout=SEEN_WITHIN, message=lambda: f"{text!r} is seen on {page.url}")


def faults_of_layout(page: Page) -> list[str]:
    """What is too wide, cut, tiny, or broken in the middle of a word, in a line each."""
    found: list[str] = page.evaluate(LAYOUT, MOST_SHIFT)
    return found
