// Package control leads a policy file to a running generation and back: it compiles, applies, reports, explains, and
// fills dynamic sets. The commands are thin around it; the lab uses it just as they do.
package control
