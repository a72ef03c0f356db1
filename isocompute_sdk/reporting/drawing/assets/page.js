(() => {
  const positions = JSON.parse(document.getElementById("positions").textContent);
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  document.getElementById("slider")?.addEventListener("input", e => {
    const [budget, values] = positions[+e.target.value];
    document.getElementById("picked").textContent = budget;
    document.querySelectorAll("[data-value]").forEach((cell, k) => (cell.textContent = values[k] || "-"));
  });
  document.getElementById("theme").addEventListener("click", () => (root.dataset.theme = theme() === "dark" ? "light" : "dark"));
})();
