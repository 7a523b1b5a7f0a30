package main

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/api"
	"github.com/floodwall/floodwall/internal/attack"
	"github.com/floodwall/floodwall/internal/journal"
)

// levels are those of the kinds of events.
var levels = map[string]journal.Level{api.KindDone: journal.Info, api.KindWarning: journal.Warning, api.KindAttack: journal.Notice}

// toJournal writes events to the journal. Changes are not among them: the audit writes them.
func toJournal(log journal.Log) func(api.Event) {
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
