// On a narrow screen site.css shows each row of a table as a card: each cell then needs
// the heading of its column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, index) => (cell.dataset.head = heads[index] ?? ""));
    }
  }
});
