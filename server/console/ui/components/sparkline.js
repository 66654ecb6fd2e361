// Sparkline draws the last ten minutes of a measurement.
import { html } from "./parts.js";

const width = 240;
const height = 44;

// Sparkline gets values, the oldest first, the title, and the text of the latest value.
export function Sparkline({ title, values, latest, note }) {
  const top = Math.max(...values, 1);
  const low = Math.min(...values, top);
  const base = low > top * 0.5 ? low - (top - low) * 0.25 : 0; // a large level with small changes uses the height for those
  const x = (i) => (values.length > 1 ? (i * width) / (values.length - 1) : width);
  const y = (v) => height - 3 - ((v - base) / (top - base || 1)) * (height - 8);
  const points = values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  return html`
    <section class="tile">
      <h2>${title}</h2>
      <p class="tile-value number">${latest}</p>
      ${values.length > 1 && html`
        <svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label=${`${title} in the last ten minutes: now ${latest}, at most ${top}`}>
          <polygon class="area" points=${`0,${height} ${points} ${width},${height}`} />
          <polyline class="line" points=${points} vector-effect="non-scaling-stroke" />
        </svg>`}
      <p class="tile-note">${note}</p>
    </section>`;
}
