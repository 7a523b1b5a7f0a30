// Package safefile has what files need that must survive a crash and a second process: a file is replaced in one step, a
// directory is locked, and a key is read only from a file that nobody else may read. It knows no format.
//
//	unlock, err := safefile.Lock(ctx, dir, func() error { return os.MkdirAll(dir, 0o700) })
//	err = safefile.Replace(file, text, 0o644)
//	secret, err := safefile.Private().Read(key)                 // a Rule says whose a file may be
//	if cause := safefile.Unshared().Breach(info); cause != "" { // and what others may do with it
//		refuse(cause)
//	}
package safefile
