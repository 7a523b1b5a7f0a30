// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/integrations"
)

// levels are the log levels of the kinds of events.
var levels = map[string]integrations.Level{api.KindDone: integrations.Info, api.KindWarning: integrations.Warning, api.KindAttack: integrations.Notice}

// toJournal returns a function that writes events to the journal. It skips changes, because the audit log writes them.
func toJournal(log integrations.Log) func(api.Event) {
	return func(event api.Event) {
		level, ok := levels[event.Kind]
		if !ok {
			return
		}
		fields := map[string]string{"EVENT": event.Kind, "EVENT_ID": fmt.Sprint(event.ID)}
		if turn, ok := event.Data.(*attack.Turn); ok {
			fields["ATTACK"], fields["STATE"], fields["RULE"], fields["WHY"] = turn.Attack.ID, turn.State, turn.Rule, turn.Why
		}
		log.Write(level, event.Text, fields)
	}
}
