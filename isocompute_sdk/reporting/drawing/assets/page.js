(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const short = v => {
    const size = Math.abs(v), [d, s] = size >= 1e9 ? [1e9, "B"] : size >= 1e6 ? [1e6, "M"] : size >= 1e3 ? [1e3, "k"] : [1, ""];
    return +(v / d).toPrecision(3) + s;
  };
  const formats = { "@compact": short, "@power2": v => (Number.isInteger(v) ? 2 ** v : "") };
  const coloured = new Set(["color", "pageIconColor", "pageIconInactiveColor", "formatter"]);
  const tip = p => {
    const box = document.createElement("div");
    box.style.cssText = "white-space:pre-line;max-width:260px;overflow-wrap:anywhere";
    box.textContent = p.data.name || `${p.seriesId}\n${p.seriesName}\nC = ${short(p.value[0])}: ${+p.value[1].toPrecision(4)}`;
    return box;
  };
  let charts = {}, picked = null;
  const draw = forced => {
    const colours = data.palette[forced || theme()];
    const paint = (key, v) => coloured.has(key) && typeof v === "string" && v[0] === "@" ? formats[v] || colours[v.slice(1)] : v;
    for (const box of document.querySelectorAll("[data-chart]")) {
      charts[box.dataset.chart]?.dispose();
      const option = JSON.parse(JSON.stringify(data.charts[box.dataset.chart]), paint);
      Object.assign(option.tooltip, { formatter: tip, backgroundColor: colours.card, borderColor: colours.line, textStyle: { color: colours.ink } });
      (charts[box.dataset.chart] = echarts.init(box, null, { renderer: "svg" })).setOption(option);
    }
    if (picked !== null) pick(picked);
  };
  const pick = i => {
    const [budget, values, marker] = data.slider.positions[(picked = i)];
    document.getElementById("picked").textContent = budget;
    document.querySelectorAll("[data-value]").forEach((cell, k) => (cell.textContent = values[k] || "-"));
    charts[data.slider.chart].setOption({ series: [{ id: "here", data: [{ value: marker, name: budget }] }] });
  };
  document.getElementById("slider")?.addEventListener("input", e => pick(+e.target.value));
  document.getElementById("theme").addEventListener("click", () => { root.dataset.theme = theme() === "dark" ? "light" : "dark"; draw(); });
  dark.addEventListener("change", () => draw());
  addEventListener("resize", () => Object.values(charts).forEach(chart => chart.resize()));
  addEventListener("beforeprint", () => { root.classList.add("printing"); draw("light"); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); draw(); });
  draw();
})();
