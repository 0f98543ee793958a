// The page: every flame graph drawn, keys for all, light and dark.

const flames = new Map();

function wake(section) {
  if (flames.has(section)) return flames.get(section);
  const data = JSON.parse(document.getElementById(section.dataset.flame).textContent);
  const flame = new Flame(section, data);
  flames.set(section, flame);
  flame.restore();
  return flame;
}

/** Return the flame graph that keys are meant for: where the focus is, else the first in sight. */
function meant() {
  const sections = [...document.querySelectorAll("[data-flame]")];
  const here = document.activeElement?.closest("[data-flame]")
    ?? sections.find((each) => each.getBoundingClientRect().bottom > 80) ?? sections[0];
  return here && wake(here);
}

function shortcuts(event) {
  const typing = event.target.closest?.("input");
  const find = (event.ctrlKey || event.metaKey) && !event.altKey && event.key === "f";
  // A second time the browser's own search opens.
  const asks = find ? !typing : event.key === "/" && !typing && !event.ctrlKey && !event.metaKey;
  const flame = asks && meant();
  if (!flame) return;
  event.preventDefault();
  flame.search.input.focus();
  flame.search.input.select();
}

function themeButton() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const tell = () => { made.textContent = isDark() ? "Light" : "Dark"; };
  const made = button("", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
  }, { title: "Light or dark" });
  dark.addEventListener("change", tell);
  tell();
  return made;
}

document.documentElement.classList.add("scripted");
document.querySelector("header .theme")?.append(themeButton());
document.addEventListener("keydown", shortcuts);
document.querySelectorAll("[data-flame]").forEach((section, index) => {
  // The first at once; the others after it, so that a page of many is soon there.
  if (index === 0) wake(section);
  else if (!section.hidden || storedState(section.dataset.flame).has("folding")) {
    setTimeout(() => wake(section), 0);
  }
});
