// SPDX-License-Identifier: Apache-2.0

// Package boot stores the policy that is loaded after a reboot, and installs the systemd units that load it. It applies no policy: daemon/operate
// does.
//
// The stored policy is a copy of the policy that was applied and confirmed, never the operator's file. So an edit that nobody has applied cannot come
// into force by a reboot. A copy has the policy's text without any change, its list files and the options of the apply. Copies are directories in
// `boot` of the state directory. Symbolic links give them their roles:
//
//	boot/current -> c5f0…   is loaded after a reboot
//	boot/previous -> c21b…  was the current one before, and becomes it again after a rollback
//	boot/trial -> ce93…     waits to be confirmed; nothing reads it at boot
//
// A link is replaced by rename, so after a power failure at any time it names the old copy or the new one, and both are complete.
//
//	store := boot.Open(state)
//	staged, err := store.Stage(ctx, boot.Source{Policy: p, Text: text})
//	err = staged.Commit() // after the policy is in force
//	saved, err := store.Load()
package boot
