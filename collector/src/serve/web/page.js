// Renews the page in place every few seconds: scroll position and opened details stay.
"use strict";
(() => {
  const seconds = Number(document.currentScript.dataset.seconds) || 5;
  const lost = document.getElementById("lost");
  let since = null;
  const opened = () => new Map([...document.querySelectorAll("details[data-key]")].map((d) => [d.dataset.key, d.open]));
  async function renew() {
    if (document.hidden || String(window.getSelection())) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = fresh.querySelector("main");
      if (!main) throw new Error("not our page");
      const before = opened();
      for (const d of main.querySelectorAll("details[data-key]")) {
        if (before.has(d.dataset.key)) d.open = before.get(d.dataset.key);
      }
      const focused = document.activeElement && document.activeElement.getAttribute("href");
      document.querySelector("main").replaceWith(main);
      if (focused) [...main.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
      document.title = fresh.title;
      since = null;
      lost.hidden = true;
    } catch {
      since ??= new Date();
      lost.textContent = `No answer from the collector since ${since.toLocaleTimeString()}: the data below is outdated.`;
      lost.hidden = false;
    }
  }
  setInterval(renew, seconds * 1000);
})();
