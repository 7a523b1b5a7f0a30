// SPDX-License-Identifier: Apache-2.0

// Package wording has parts of messages: quotes, enumerations, the nearest known word for a misspelt one, errors with a remedy, and errors about
// arguments and flags. It formats figures, times and tables for people. It has no messages of its own: each message is in the code that detects its
// error. Regexp compiles a pattern at its first use.
//
//	err := wording.Errorf("name one of them: "+wording.Either(known), "set %s is not there", wording.Quote(name))
package wording
