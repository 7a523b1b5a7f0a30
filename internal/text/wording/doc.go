// Package wording has parts of messages: quotes, enumerations, the known word that is nearest to a misspelt one, errors with a
// remedy, and the errors about arguments and flags. It writes figures, times and tables as people read them. It has no message
// of its own: a message is where its error is found. Regexp compiles a pattern when it is first used.
//
//	err := wording.Errorf("name one of them: "+wording.Either(known), "set %s is not there", wording.Quote(name))
package wording
