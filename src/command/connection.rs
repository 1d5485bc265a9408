//! The connection group: what may be asked on a shared connection.
use super::args::ToArg;
use super::macros::commands;

commands! {
    /// Commands about the connection.
    ///
    /// Each is also a function of [`command::connection`](self) that builds the command unsent.
    /// What would alter the connection (AUTH, HELLO, SELECT, CLIENT SETNAME) is the options' part.
    trait ConnectionCommands;

    /// The identity of the connection that the command happens to be sent on.
    ///
    /// Replies with an integer. Since 5.0.0, O(1).
    fn client_id() -> u64 = CLIENT_ID;

    /// What the server knows of the connection that the command happens to be sent on.
    ///
    /// Replies with text: `name=value` parts divided by blanks. Since 6.2.0, O(1).
    fn client_info() -> String = CLIENT_INFO;

    /// What the server knows of all connections.
    ///
    /// Replies with text, a line for each. Since 2.4.0, O(n).
    fn client_list() -> String = CLIENT_LIST;

    /// The same text back.
    ///
    /// Replies with the text. Since 1.0.0, O(1).
    fn echo<R>(message: impl ToArg) -> R = ECHO: one(message);

    /// Asks for a sign of life.
    ///
    /// Replies with PONG. Since 1.0.0, O(1).
    fn ping() -> String = PING;

    /// Asks for a sign of life that is told from others.
    ///
    /// Replies with the message. Since 1.0.0, O(1).
    fn ping_with<R>(message: impl ToArg) -> R = PING: one(message);
}
