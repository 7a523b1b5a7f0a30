package control

import (
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// Types of other packages that the methods of Instance take or return, under the names that their callers use.
type (
	// Ban is an entry to put into a dynamic set.
	Ban = ban.Ban
	// Blocked is an entry of a dynamic set.
	Blocked = ban.Blocked
	// Origin says who asked for a ban.
	Origin = ban.Origin
	// Owner is whose entries an UnblockOf may remove.
	Owner = ban.Owner
	// Refusal says why one entry of a Block or Unblock was not changed.
	Refusal = ban.Refusal
	// Refusals are all of a call, in its order.
	Refusals = ban.Refusals
	// SetError says that a set cannot be used as it was asked.
	SetError = ban.SetError
	// FallenError says that a policy should run, and nothing of it is in the kernel.
	FallenError = generation.FallenError
	// Repairs is how often something of a generation was put back.
	Repairs = generation.Repairs
	// BanAction says what becomes of prefixes that exceed a limit.
	BanAction = manifest.BanAction
	// Move is a change of stages of the policy that runs.
	Move = manifest.Move
	// RuleMove is a rule, or the default, that has another stage.
	RuleMove = manifest.RuleMove
)

// Origins are all there are, by name.
var Origins = ban.Origins

// Constants of dynamic sets, as in package ban.
const (
	Forever   = ban.Forever   // the duration of a Ban that does not expire
	Manual    = ban.Manual    // the Origin of a ban by a person, or by a program
	CrowdSec  = ban.CrowdSec  // the Origin of a ban by a CrowdSec local API
	Suricata  = ban.Suricata  // the Origin of a ban by an alert of Suricata
	Automatic = ban.Automatic // the Origin of a ban by a limit with `ban`
	Fleet     = ban.Fleet     // the Origin of a ban by another node of the fleet
)
