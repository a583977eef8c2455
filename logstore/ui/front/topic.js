// A topic: its partitions, and a link to its settings.

import { html } from "./vendor/htm-preact.js";
import { TopicActions } from "./actions.js";
import { PartitionList } from "./list.js";
import { useTitle } from "./parts.js";
import { hashOf } from "./routes.js";

export function Page({ params, about, refreshAbout }) {
  const { topic } = params;
  useTitle(topic);
  return html`
    <nav class="crumbs" aria-label="Above this page"><a href=${hashOf()}>Partitions</a></nav>
    <div class="heading">
      <h1>${topic}</h1>
      <a class="button" href=${hashOf(["t", topic, "settings"])}>Settings of this topic</a>
    </div>
    <${TopicActions} topic=${topic} about=${about} onDone=${refreshAbout} />
    <h2 class="unseen">Partitions of this topic</h2>
    <${PartitionList}
      query=${params.query}
      about=${about}
      topic=${topic}
      hash=${(query) => hashOf(["t", topic], query)}
    />
  `;
}
