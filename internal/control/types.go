package control

import (
	"github.com/floodwall/floodwall/internal/dynamicset"
	"github.com/floodwall/floodwall/internal/generation"
	"github.com/floodwall/floodwall/internal/manifest"
)

// Types of other packages that the methods of Instance take or return, under the names that their callers use.
type (
	// Ban is an entry to put into a dynamic set.
	Ban = dynamicset.Ban
	// Blocked is an entry of a dynamic set.
	Blocked = dynamicset.Blocked
	// Origin says who asked for a ban.
	Origin = dynamicset.Origin
	// Owner is whose entries an UnblockOf may remove.
	Owner = dynamicset.Owner
	// Refusal says why one entry of a Block or Unblock was not changed.
	Refusal = dynamicset.Refusal
	// Refusals are all of a call, in its order.
	Refusals = dynamicset.Refusals
	// SetError says that a set cannot be used as it was asked.
	SetError = dynamicset.SetError
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
var Origins = dynamicset.Origins

// Constants of dynamic sets, as in package dynamicset.
const (
	Forever   = dynamicset.Forever   // the duration of a Ban that does not expire
	Manual    = dynamicset.Manual    // the Origin of a ban by a person, or by a program
	CrowdSec  = dynamicset.CrowdSec  // the Origin of a ban by a CrowdSec local API
	Suricata  = dynamicset.Suricata  // the Origin of a ban by an alert of Suricata
	Automatic = dynamicset.Automatic // the Origin of a ban by a limit with `ban`
	Fleet     = dynamicset.Fleet     // the Origin of a ban by another node of the fleet
)
