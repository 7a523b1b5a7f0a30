package image

import "unsafe"

// Structs of the C part that user space writes into maps, as bpf2go finds them in the object's BTF. Numbers have the host's
// byte order.
type (
	// ActionRecord is what is done for a rule beside its verdict: struct action of bpf/decision.h.
	ActionRecord = floodwallAction
	// ConditionRecord is what a rule asks of a packet beside its fields: struct condition of bpf/condition.h.
	ConditionRecord = floodwallCondition
	// FloodRecord has the limits by which a flood is told: struct flood of bpf/flood.h.
	FloodRecord = floodwallFlood
	// GuardRecord is how a service is guarded: struct guard of bpf/verify.h.
	GuardRecord = floodwallGuard
	// ProtectionRecord is how SYNs to a service are answered: struct protection of bpf/protection.h.
	ProtectionRecord = floodwallProtection
)

// Sizes of these structs in bytes, and so of a map's values.
const (
	ActionSize     = int(unsafe.Sizeof(ActionRecord{}))
	ConditionSize  = int(unsafe.Sizeof(ConditionRecord{}))
	FloodSize      = int(unsafe.Sizeof(FloodRecord{}))
	GuardSize      = int(unsafe.Sizeof(GuardRecord{}))
	ProtectionSize = int(unsafe.Sizeof(ProtectionRecord{}))
)

// Put writes a struct to the start of a map's memory, which must be as long.
func Put[T ActionRecord | ConditionRecord | FloodRecord | GuardRecord | ProtectionRecord](to []byte, v T) {
	size := unsafe.Sizeof(v)
	copy(to[:size], unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
}
