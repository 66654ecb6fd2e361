// Audit: what operators did, with the verified identity.
import { useState } from "../vendor/hooks.js";
import { useRead, useWatch } from "../components/state.js";
import { Empty, html, Loading, Page, Pager } from "../components/parts.js";
import { Record } from "../components/record.js";

export function Audit() {
  const [tokens, setTokens] = useState([""]);
  useWatch({ audit: true });
  const read = useRead("OperatorService/ListAudit", { pageSize: 50, pageToken: tokens.at(-1) }, { interval: 500 });
  const records = read.data?.records ?? [];
  const turn = (next) => { setTokens(next); window.scrollTo(0, 0); };
  return html`
    <${Page} title="Audit" read=${read}>
      ${!read.data ? (read.error?.final ? null : html`<${Loading} rows=${8} />`) : records.length === 0 ? html`
        <${Empty} title="No records">No operator has done anything yet.<//>` : html`
        <ol class="records">${records.map((record) => html`<${Record} key=${record.id} record=${record} />`)}</ol>
        <${Pager} page=${tokens.length - 1} shown=${records.length} noun="record" hasNext=${read.data.nextPageToken !== ""}
          back=${() => turn(tokens.slice(0, -1))} next=${() => turn([...tokens, read.data.nextPageToken])} />`}
    <//>`;
}
