// Links to other places of the Airflow UI. In its frame neither pop-ups nor top navigation are allowed: the UI's own
// router is asked instead, as if the person had used the address bar.

import { make } from "./dom.js";

function framed() {
  try {
    return window.parent !== window && Boolean(window.parent.document);
  } catch {
    return false;
  }
}

export function uiLink(path, ...content) {
  return make("a", { href: path, "data-key": `link ${path}`, onclick: (event) => follow(event, path) }, ...content);
}

function follow(event, path) {
  // Another tab or window is not allowed either, so whatever key is held the frame's own UI goes there.
  if (!framed()) return;
  event.preventDefault();
  window.parent.history.pushState({}, "", path);
  window.parent.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
}

// Airflow's UI says its mode in a class of its own document; by itself the page follows the system.
export function followTheme() {
  const apply = () => {
    const names = framed() ? window.parent.document.documentElement.classList : { contains: () => false };
    if (names.contains("dark")) document.documentElement.dataset.theme = "dark";
    else if (names.contains("light")) document.documentElement.dataset.theme = "light";
    else delete document.documentElement.dataset.theme;
  };
  apply();
  if (framed()) {
    new MutationObserver(apply).observe(window.parent.document.documentElement, { attributeFilter: ["class"] });
  }
}
