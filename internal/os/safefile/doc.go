// Package safefile has what files need that must survive a crash and a second process: a file is replaced in one step, a
// directory is locked, and a key is read only from a file that nobody else may read. It knows no format.
//
//	unlock, err := safefile.Lock(ctx, dir, nil)
//	err = safefile.Replace(file, text, 0o644)
//	secret, err := safefile.Read(key)
package safefile
