// Package wording has parts of messages: quotes, enumerations, the known word that is nearest to a misspelt one, and the
// errors about arguments and flags. Figures, times and tables are written as people read them. It has no message of its own: a message is where its error is found. Lazy makes a
// value when it is first used.
package wording
