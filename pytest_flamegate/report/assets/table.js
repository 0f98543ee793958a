// The tables of the page: sorted by a click on a heading, searched by a click on a name.

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const label = head.textContent;
    head.replaceChildren(button(label, () => sort(table, heads, column), { title: `Sort by ${label}` }));
  });
}

function sort(table, heads, column) {
  const rows = [...table.tBodies[0].rows].map((row) => [row, key(row.cells[column])]);
  // Names are first read from A on, figures from the largest.
  const [first, second] = typeof rows[0]?.[1] === "string"
    ? ["ascending", "descending"] : ["descending", "ascending"];
  const order = heads[column].getAttribute("aria-sort") === first ? second : first;
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", order);
  rows.sort(([, one], [, other]) => (order === "ascending" ? 1 : -1) * compared(one, other));
  table.tBodies[0].append(...rows.map(([row]) => row));
}

/** Return what a cell sorts by: its exact value where one is told, else its text. */
function key(cell) {
  const { value } = cell.firstElementChild?.dataset ?? {};
  return value === undefined ? cell.textContent : Number(value);
}

function compared(one, other) {
  return typeof one === "number" ? one - other : one.localeCompare(other, "en");
}

/** Turn the first cell of each row into a button that looks for that function. */
function searchable(table, search) {
  for (const row of table.tBodies[0].rows) {
    const name = row.cells[0].querySelector(".name");
    const made = make("button", { type: "button", class: "name", title: "Find in the picture" });
    made.append(...name.childNodes);
    made.addEventListener("click", () => search(made.textContent));
    name.replaceWith(made);
  }
}
