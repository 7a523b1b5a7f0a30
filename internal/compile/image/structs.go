// SPDX-License-Identifier: Apache-2.0

package image

import "unsafe"

// Structs of the C part that user space writes into maps. bpf2go generates them from the object's BTF. Numbers are in the host's byte order.
type (
	// ActionRecord has the actions of a rule other than its verdict: struct action of bpf/decision.h.
	ActionRecord = floodwallAction
	// ConditionRecord has the tests of a rule other than fields and addresses: struct condition of bpf/condition.h.
	ConditionRecord = floodwallCondition
	// FloodRecord has the limits by which a flood is detected: struct flood of bpf/flood.h.
	FloodRecord = floodwallFlood
	// GuardRecord has the parameters of a guard: struct guard of bpf/verify.h.
	GuardRecord = floodwallGuard
	// ProtectionRecord has the parameters of a SYN protection: struct protection of bpf/protection.h.
	ProtectionRecord = floodwallProtection
)

// Sizes of these structs in bytes, which are also the sizes of the maps' values.
const (
	ActionSize     = int(unsafe.Sizeof(ActionRecord{}))
	ConditionSize  = int(unsafe.Sizeof(ConditionRecord{}))
	FloodSize      = int(unsafe.Sizeof(FloodRecord{}))
	GuardSize      = int(unsafe.Sizeof(GuardRecord{}))
	ProtectionSize = int(unsafe.Sizeof(ProtectionRecord{}))
)

// Put writes a struct to the start of a map's memory, which must be at least as long as the struct.
func Put[T ActionRecord | ConditionRecord | FloodRecord | GuardRecord | ProtectionRecord](to []byte, v T) {
	size := unsafe.Sizeof(v)
	copy(to[:size], unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
}
