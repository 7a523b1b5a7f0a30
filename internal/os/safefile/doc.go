// SPDX-License-Identifier: Apache-2.0

// Package safefile handles files that must stay consistent after a crash and with concurrent processes. It replaces a
// file atomically, locks a directory, and reads a key only from a file that other users cannot read. It knows no file
// format.
//
//	unlock, err := safefile.Lock(ctx, dir, func() error { return os.MkdirAll(dir, 0o700) })
//	unlock, err = safefile.LockBeside(ctx, file) // in a directory that all users can read
//	err = safefile.Replace(file, text, 0o644)
//	secret, err := safefile.Private().Read(key)                 // a Rule says whose a file may be
//	if cause := safefile.Unshared().Breach(info); cause != "" { // and what others may do with it
//		refuse(cause)
//	}
package safefile
