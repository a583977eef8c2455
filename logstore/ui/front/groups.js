// Consumer groups: members, committed offsets and lag.

import { html, useState } from "./vendor/htm-preact.js";
import { path, useAnswer } from "./api.js";
import { formatCount, formatLag, lagInAll, plural } from "./format.js";
import { Badge, Empty, Requested, Rows, useTitle } from "./parts.js";
import { hashOf } from "./routes.js";

const OPEN_MAX = 5;

export function Page() {
  useTitle("Groups");
  const groups = useAnswer("groups", { on: ["partitions"] });
  return html`<h1>Groups</h1>
    <${Requested} of=${groups} what="Groups">
      ${({ groups: found }) =>
        found.length === 0
          ? html`<${Empty}>There are no consumer groups with committed offsets or members.<//>`
          : found.map(
              (group) => html`<${Group} key=${group.group_id} group=${group}
                isOpen=${found.length <= OPEN_MAX} />`,
            )}
    <//>`;
}

// Details are requested when a group is expanded, because there may be thousands of groups.
function Group({ group, isOpen }) {
  const [open, setOpen] = useState(isOpen);
  const target = open ? path("groups", group.group_id) : null;
  const described = useAnswer(target, { on: ["partitions"] });
  return html`<details class="panel group" open=${open} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>
      <h2>${group.group_id}</h2> <${Badge} kind=${group.group_state === "Stable" ? "good" : "plain"}>
        ${group.group_state || "unknown"}<//>
      ${group.group_type === "consumer" && html` <${Badge} kind="plain">consumer protocol<//>`}
    </summary>
    ${open && html`<${Requested} of=${described} what=${group.group_id}>
      ${(answer) => html`<${Members} group=${group.group_id} members=${answer.members} />
        <${Offsets} group=${group.group_id} offsets=${answer.offsets} />`}
    <//>`}
  </details>`;
}

function Members({ group, members }) {
  if (members.length === 0) return html`<p>No members are connected.</p>`;
  return html`<p class="dim">${plural(members.length, "member")}</p>
    <${Rows} label=${`Members of ${group}`} headings=${["Member", "Client", "Host", "Partitions"]}>
      ${members.map(
        (member) => html`<tr key=${member.member_id}>
          <th scope="row">${member.group_instance_id ?? member.member_id}</th>
          <td>${member.client_id}</td>
          <td>${member.client_host}</td>
          <td>${member.assignment.map(
            (each) => html`<${PartitionLink} key=${`${each.topic}-${each.partition}`} of=${each} /> `,
          )}</td>
        </tr>`,
      )}
    <//>`;
}

function Offsets({ group, offsets }) {
  if (offsets.length === 0) return html`<p>No committed offsets.</p>`;
  const knowsMissed = offsets.some((each) => each.missed_tombstones !== undefined);
  const headings = ["Partition", "Next offset", "Log end offset", "Lag"];
  return html`<p class="dim">${plural(offsets.length, "partition")}, ${lagInAll(offsets.map((each) => each.lag))}</p>
    <${Rows} label=${`Offsets of ${group}`} headings=${knowsMissed ? [...headings, "Deletions missed"] : headings} numbers=${headings.slice(1)}>
      ${offsets.map(
        (each) => html`<tr key=${`${each.topic}-${each.partition}`}>
          <th scope="row"><${PartitionLink} of=${each} /></th>
          <td class="is-number">${formatCount(each.offset)}</td>
          <td class="is-number">${formatLag(each.log_end_offset)}</td>
          <td class="is-number">${formatLag(each.lag)}</td>
          ${knowsMissed && html`<td>${missedInWords(each)}</td>`}
        </tr>`,
      )}
    <//>`;
}

function PartitionLink({ of: { topic, partition } }) {
  return html`<a href=${hashOf(["t", topic, partition])}>${topic}-${partition}</a>`;
}

function missedInWords({ missed_tombstones: missed }) {
  if (missed === undefined || missed === null) return "not known";
  return missed === 0 ? "none" : `${plural(missed, "tombstone")} removed before it read them`;
}
