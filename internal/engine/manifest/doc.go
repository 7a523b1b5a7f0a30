// Package manifest has what a generation remembers of its policy: its rules with their counter slots, its sets, limits,
// guards and protections. It is JSON beside the programs in the BPF file system, and later versions read it.
package manifest
