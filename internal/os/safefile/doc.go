// Package safefile has what files need that must survive a crash and a second process: a file is replaced in one step, a
// directory is locked, and a key is read only from a file that nobody else may read. It knows no format.
package safefile
