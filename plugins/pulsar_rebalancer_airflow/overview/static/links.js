// Links into the Airflow UI. Its frame forbids pop-ups and top navigation, so the UI's own router follows them, as if
// the user had typed the address.

import { make } from "./dom.js";

/** Return the document of the Airflow UI around this page; null when the page is open by itself. */
function uiDocument() {
  try {
    return window.parent === window ? null : window.parent.document;
  } catch {
    return null;
  }
}

/** @type {(path: string, text: string) => HTMLElement} */
export function uiLink(path, text) {
  return make("a", { href: path, "data-key": `link ${path}`, onclick: (event) => follow(event, path) }, text);
}

/** @type {(event: Event, path: string) => void} */
function follow(event, path) {
  // Modifier keys are ignored: the frame allows no other tab or window either.
  if (!uiDocument()) return;
  event.preventDefault();
  window.parent.history.pushState({}, "", path);
  window.parent.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
}

/** Follow the theme of the Airflow UI, which is a class of its document; without the UI, the system's theme applies. */
export function followTheme() {
  const ui = uiDocument()?.documentElement;
  if (!ui) return;
  const apply = () => {
    const theme = ["dark", "light"].find((name) => ui.classList.contains(name));
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  apply();
  new MutationObserver(apply).observe(ui, { attributeFilter: ["class"] });
}
