// Elements and figures. What comes from outside is only ever set as text.

/** Return a new element; an attribute that is false or null is left out. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Return a button; `pressed` makes it one that stays down, `name` reads a sign aloud. */
function button(label, act, { title = label, name = null, pressed = null } = {}) {
  const attributes = { type: "button", title, "aria-label": name, "aria-pressed": pressed };
  const made = make("button", attributes, label);
  made.addEventListener("click", act);
  return made;
}

function press(made, down) {
  made.setAttribute("aria-pressed", String(down));
}

/** Return the state of one flame graph in the address: `#flame-1?zoom=0.2&search=gemv`. */
function storedState(name) {
  const part = location.hash.slice(1).split("/").find((each) => each.startsWith(`${name}?`));
  return new URLSearchParams(part?.slice(name.length + 1) ?? "");
}

function storeState(name, state) {
  const others = location.hash.slice(1).split("/").filter((each) => each.includes("?") && !each.startsWith(`${name}?`));
  const written = state.toString() ? [...others, `${name}?${state}`] : others;
  const address = `${location.pathname}${location.search}${written.length ? `#${written.join("/")}` : ""}`;
  history.replaceState(null, "", address);
}

// The same words as the report's own figures (text.py).
const figures = {
  count: (value) => value.toLocaleString("en-GB"),

  plural: (value, one) => `${figures.count(value)} ${value === 1 ? one : `${one}s`}`,

  share(value) {
    return value > 0 && value < 0.0005 ? "< 0.1 %" : `${(100 * value).toFixed(1)} %`;
  },

  significant(value) {
    if (value === 0) return "0";
    const exponent = Number(value.toExponential(2).split("e")[1]);
    const digits = Math.max(2 - exponent, 0);
    return value.toLocaleString("en-GB", {
      minimumFractionDigits: digits, maximumFractionDigits: digits,
    });
  },

  seconds(value) {
    const size = Math.abs(value);
    if (size === 0) return "0 s";
    for (const [floor, scale, unit] of [[1, 1, "s"], [1e-3, 1e3, "ms"], [1e-6, 1e6, "µs"]]) {
      if (size >= floor * 0.9995) return `${figures.significant(value * scale)} ${unit}`;
    }
    return `${figures.significant(value * 1e9)} ns`;
  },

  signed: (value, written) => `${value > 0 ? "+" : ""}${written(value)}`,
};
