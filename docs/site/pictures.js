// Pages choose pictures by the system's theme, as code hosts understand it; the site's own switch must count too.
const dark = "(prefers-color-scheme: dark)";

function choose() {
  const media = { dark: "all", light: "not all" }[document.body.dataset.theme] ?? dark;
  for (const source of document.querySelectorAll("picture > source")) source.media = media;
}

addEventListener("DOMContentLoaded", () => {
  choose();
  new MutationObserver(choose).observe(document.body, { attributeFilter: ["data-theme"] });
});
