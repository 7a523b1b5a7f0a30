// SPDX-License-Identifier: Apache-2.0

package api

// Routes are all routes of the API, in the order of the OpenAPI document.
func Routes() []Route {
	return []Route{
		stream("/health", "whether what was applied is in force: 200 when it is, 503 when it is not, with the reason",
			"", Read, (*Call).health).answers(healthResult),
		read("/status", "what runs, and what it has decided so far: what `floodwall status --json` prints", (*Call).fullStatus),
		read("/rules", "rules, checks and the default, with what each has decided", (*Call).rules),
		read("/sets", "sets, with how full they are", (*Call).sets),
		read("/sets/{name}/entries", "entries of a dynamic set by address, a page at a time", (*Call).entries, entriesQuery...),
		read("/fleet", "how this host stands in its fleet of nodes", (*Call).fleet),
		read("/feeds", "sets whose lists are fetched or read from a database: what `floodwall feeds --json` prints", (*Call).feeds),
		read("/temporary", "rules that stand before those of the policy for a time, with what they have counted", (*Call).temporary),
		ask("/explain", "which verdict what runs gives a packet, and why: what `floodwall explain --live --json` prints", (*Call).explain),
		stream("/capture", "packets that rules with `sample` hand out, as pcapng; one capture at a time", "application/x-pcapng", Packets,
			(*Call).capture, captureQuery...),
		read("/top", "what came in some seconds, and what the policy did with it: what `floodwall top --json` prints", (*Call).top, lookQuery...),
		stream("/series", "what was decided in the past ten minutes, in steps of two seconds or more", "", Read, (*Call).past,
			Parameter{Name: "after", Summary: "only steps after this time, the `time` of the last step that the client has"}).answers(Past{}),
		read("/suggest", "rules against what comes now and XDP passes, without a baseline", (*Call).suggest, lookQuery...).shows(Packets),
		stream("/samples", "samples of the traffic with their verdicts, as `sample` of `daemon` has XDP take them, a JSON object in each line",
			"application/x-ndjson", Packets, (*Call).samples, lookQuery...),
		read("/attacks", "attacks that `detect` of the policy has seen, the latest first: what `floodwall attacks --json` prints", (*Call).attacks),
		read("/attacks/{id}", "the report of an attack", (*Call).attack).shows(Packets),
		stream("/attacks/{id}/page", "the report of an attack as one page", "text/html", Packets, (*Call).attackPage),
		stream("/attacks/{id}/capture", "packets of an attack, as pcapng", "application/x-pcapng", Packets, (*Call).attackCapture),
		stream(metricsPath, "figures for Prometheus", "text/plain", Read, (*Call).scrape),
		stream("/events", "what happens, as server-sent events", "text/event-stream", Read, (*Call).events,
			Parameter{Name: "after", Summary: "the number of the last event that the client has; the header Last-Event-ID says the same"}),
		change("/block", "put addresses, prefixes and ranges into a dynamic set, at once", blockText, (*Call).block),
		change("/unblock", "take entries out of a dynamic set, at once", unblockText, (*Call).unblock),
		change("/apply", "make a policy the one that runs: all of it, or nothing changes", applyText, (*Call).apply),
		change("/feeds/refresh", "fetch lists now, and exchange their sets", refreshText, (*Call).refreshFeeds),
		change("/feeds/accept", "take the list that is held because it shrank or grew too much", acceptText, (*Call).acceptFeed),
		change("/temporary/add", "add a rule that drops before all rules of the policy, for a time", addTemporaryText, (*Call).addTemporary),
		change("/temporary/remove", "remove temporary rules at once", removeTemporaryText, (*Call).removeTemporary),
		change("/confirm", "keep the policy that is on trial", named[Nothing]("confirm"), (*Call).confirm),
		change("/rollback", "return to the previous policy, also from a trial", named[Nothing]("rollback"), (*Call).rollback),
		read("/openapi.json", "this document", (*Call).document),
	}
}
