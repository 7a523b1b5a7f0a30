// Package boot keeps the policy that comes back after a reboot, and installs the systemd units that bring it back. It
// applies nothing: daemon/operate does.
//
// What comes back is a copy of what was applied and confirmed, never the operator's file: an edit that nobody has
// applied must not come up with the machine. A copy holds the policy's text, byte for byte, its list files and the
// options of the apply. Copies are directories in `boot` of the state directory, and links say what each is for:
//
//	boot/current -> c5f0…   comes back after a reboot
//	boot/previous -> c21b…  did so before, and does again after a rollback
//	boot/trial -> ce93…     waits to be confirmed; nothing reads it at boot
//
// A link changes by rename, so power loss at any time leaves the old copy or the new one, each whole.
//
//	store := boot.Open(state)
//	staged, err := store.Stage(ctx, boot.Source{Policy: p, Text: text})
//	err = staged.Commit() // after the policy is in force
//	saved, err := store.Load()
package boot
