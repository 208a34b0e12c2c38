//! The language of matches (ovn-sb(5), "Logical_Flow TABLE", `match`): text to a tree. What the fields mean is told in
//! [`super::clauses`].

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::limit::DEPTH_MAX;

/// Bytes of a match.
pub(super) const MATCH_BYTES_MAX: usize = 1 << 16;

/// Why a match cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    /// Character of the match, from 1.
    pub at: usize,
    pub message: String,
    pub help: Option<&'static str>,
}

/// A match.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expression {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// `1` and `0`.
    Is(bool),
    /// A field by itself, such as `tcp`.
    Flag(usize, String),
    Test(Test),
}

/// A field is compared with values.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Test {
    pub at: usize,
    pub field: String,
    pub comparison: Comparison,
    pub values: Vec<(usize, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// A constant.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Number(u64),
    Net(IpNet),
    Text(String),
    /// `$name`.
    AddressSet(String),
    /// `@name`.
    PortGroup(String),
    /// A MAC, or a number with a mask.
    Other,
}

impl Comparison {
    const ALL: [(&'static str, Self); 6] = [
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("<", Self::Below),
        (">", Self::Above),
    ];

    /// With its sides exchanged.
    const fn flipped(self) -> Self {
        match self {
            Self::Equal | Self::Unequal => self,
            Self::Below => Self::Above,
            Self::AtMost => Self::AtLeast,
            Self::Above => Self::Below,
            Self::AtLeast => Self::AtMost,
        }
    }

    const fn is_range(self) -> bool {
        !matches!(self, Self::Equal | Self::Unequal)
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Mark(&'static str),
    Comparison(Comparison),
    Field(String),
    Value(Value),
}

/// Reads a match.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn parse(text: &str) -> Result<Expression, Refused> {
    if text.len() > MATCH_BYTES_MAX {
        return Err(refused(1, format!("it has {} bytes; at most {MATCH_BYTES_MAX} are read", text.len())));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, next: 0, end: text.chars().count() + 1 };
    let expression = parser.expression(0)?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(refused(parser.at(), "expected the end, `&&` or `||`")),
    }
}

fn refused(at: usize, message: impl Into<String>) -> Refused {
    Refused { at, message: message.into(), help: None }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Refused> {
    const MARKS: [&str; 8] = ["&&", "||", "!", "(", ")", "{", "}", ","];
    let (mut tokens, mut rest, mut at) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first.is_ascii_whitespace() {
            (None, 1)
        } else if let Some((mark, one)) = Comparison::ALL.iter().find(|(mark, _)| rest.starts_with(mark)) {
            (Some(Token::Comparison(*one)), mark.len())
        } else if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            (Some(Token::Mark(mark)), mark.len())
        } else if first == '"' {
            let (text, length) = string(rest).ok_or_else(|| refused(at, "this string has no end"))?;
            (Some(Token::Value(Value::Text(text))), length)
        } else {
            let (token, length) = word(rest, at)?;
            (Some(token), length)
        };
        tokens.extend(token.map(|token| (at, token)));
        let (read, left) = rest.split_at(length);
        at += read.chars().count();
        rest = left;
    }
    Ok(tokens)
}

/// A string in quotes, and its length with them.
fn string(rest: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((text, index + 1)),
            '\\' => text.push(chars.next()?.1),
            _ => text.push(c),
        }
    }
    None
}

/// A field with its bits, the name of a set or group, a number or an address, and its length.
fn word(rest: &str, at: usize) -> Result<(Token, usize), Refused> {
    let (sigil, name) = match rest.chars().next() {
        Some(sigil @ ('$' | '@')) => (Some(sigil), &rest[1..]),
        _ => (None, rest),
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '/');
    let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
    let (text, after) = name.split_at(end);
    if text.is_empty() {
        let found: String = rest.chars().take(1).collect();
        return Err(refused(at, format!("{} does not belong here", crate::read::quote(&found))));
    }
    let token = match sigil {
        Some('$') => Token::Value(Value::AddressSet(text.into())),
        Some(_) => Token::Value(Value::PortGroup(text.into())),
        None => match value(text) {
            Some(Value::Other) if !text.contains(':') && !text.starts_with(|c: char| c.is_ascii_digit()) => {
                return Err(refused(at, format!("{} is no field and no constant", crate::read::quote(text))));
            }
            Some(value) => Token::Value(value),
            None => {
                let bits = after.starts_with('[').then(|| after.find(']').map(|end| end + 1));
                let bits = bits.map(|bits| bits.ok_or_else(|| refused(at, "`[` without `]`"))).transpose()?;
                let length = text.len() + bits.unwrap_or(0);
                return Ok((Token::Field(name[..length].into()), length));
            }
        },
    };
    Ok((token, rest.len() - after.len()))
}

/// `None` when it is a field.
fn value(text: &str) -> Option<Value> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    if let Some(number) = number {
        return Some(Value::Number(number));
    }
    match net(text) {
        Some(net) => Some(Value::Net(net)),
        None if text.starts_with(|c: char| c.is_ascii_digit()) || text.contains([':', '/']) => {
            Some(Value::Other)
        }
        None => None,
    }
}

/// An address, with a length or a mask or without.
fn net(text: &str) -> Option<IpNet> {
    if let Ok(net) = text.parse() {
        return Some(net);
    }
    let (address, mask) = text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
    match (address.parse().ok()?, mask) {
        (address, None) => Some(IpNet::from(address)),
        (std::net::IpAddr::V4(address), Some(mask)) => {
            Ipv4Net::with_netmask(address, mask.parse().ok()?).ok().map(IpNet::from)
        }
        (std::net::IpAddr::V6(address), Some(mask)) => {
            Ipv6Net::with_netmask(address, mask.parse().ok()?).ok().map(IpNet::from)
        }
    }
}

struct Parser<'t> {
    tokens: &'t [(usize, Token)],
    next: usize,
    /// The place after the last character.
    end: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    /// Steps over a mark if it is the next token.
    fn takes(&mut self, mark: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Mark(found)) if *found == mark);
        self.next += usize::from(is_it);
        is_it
    }

    fn expects(&mut self, mark: &str) -> Result<(), Refused> {
        if self.takes(mark) { Ok(()) } else { Err(refused(self.at(), format!("expected `{mark}`"))) }
    }

    fn expression(&mut self, depth: usize) -> Result<Expression, Refused> {
        let mut parts = vec![self.operand(depth)?];
        let Some((mark, other)) = [("&&", "||"), ("||", "&&")].into_iter().find(|(mark, _)| self.takes(mark))
        else {
            return Ok(parts.remove(0));
        };
        parts.push(self.operand(depth)?);
        while self.takes(mark) {
            parts.push(self.operand(depth)?);
        }
        let at = self.at();
        if self.takes(other) {
            let help = Some("put the parts that belong together in parentheses");
            return Err(Refused { help, ..refused(at, "`&&` and `||` stand side by side") });
        }
        Ok(if mark == "&&" { Expression::All(parts) } else { Expression::Any(parts) })
    }

    fn operand(&mut self, depth: usize) -> Result<Expression, Refused> {
        if depth == DEPTH_MAX {
            return Err(refused(self.at(), format!("nested deeper than {DEPTH_MAX} levels")));
        }
        if self.takes("(") {
            let inner = self.expression(depth + 1)?;
            self.expects(")")?;
            return Ok(inner);
        }
        if self.takes("!") {
            let negated = self.operand(depth + 1)?;
            // In parentheses everything may be negated; without, only a field by itself.
            let is_open = matches!(self.tokens.get(self.next - 1), Some((_, Token::Mark(")"))));
            if matches!(negated, Expression::Test(_)) && !is_open {
                let help = Some("put what `!` negates in parentheses");
                return Err(Refused { help, ..refused(self.at(), "`!` before a comparison") });
            }
            return Ok(Expression::Not(negated.into()));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression, Refused> {
        let at = self.at();
        if let Some(Token::Field(field)) = self.peek().cloned() {
            self.next += 1;
            if self.takes("(") {
                return self.call(at, &field);
            }
            return Ok(match self.sign() {
                None => Expression::Flag(at, field),
                Some(comparison) => {
                    Expression::Test(Test { at, field, comparison, values: self.values(comparison)? })
                }
            });
        }
        let values = self.values(Comparison::Equal)?;
        let Some(first) = self.sign() else {
            return match values.as_slice() {
                [(_, Value::Number(number @ (0 | 1)))] => Ok(Expression::Is(*number == 1)),
                _ => Err(refused(self.at(), "expected a comparison such as `==`")),
            };
        };
        let (at, Some(Token::Field(field))) = (self.at(), self.peek().cloned()) else {
            return Err(refused(self.at(), "expected a field"));
        };
        self.next += 1;
        if first.is_range() && values.len() > 1 {
            return Err(refused(at, "only `==` and `!=` compare with several values"));
        }
        let low = Test { at, field: field.clone(), comparison: first.flipped(), values };
        let Some(second) = self.sign() else { return Ok(Expression::Test(low)) };
        if !first.is_range() || !second.is_range() {
            return Err(refused(at, "only a range such as `80 <= tcp.dst <= 90` has two comparisons"));
        }
        let high = Test { at, field, comparison: second, values: self.values(second)? };
        Ok(Expression::All(vec![Expression::Test(low), Expression::Test(high)]))
    }

    /// A function such as `is_chassis_resident("p")`.
    fn call(&mut self, at: usize, name: &str) -> Result<Expression, Refused> {
        self.values(Comparison::Equal)?;
        self.expects(")")?;
        Ok(Expression::Flag(at, format!("{name}()")))
    }

    fn sign(&mut self) -> Option<Comparison> {
        let Some(Token::Comparison(comparison)) = self.peek() else { return None };
        let comparison = *comparison;
        self.next += 1;
        Some(comparison)
    }

    /// A constant, or several in `{}`.
    fn values(&mut self, comparison: Comparison) -> Result<Vec<(usize, Value)>, Refused> {
        let at = self.at();
        if !self.takes("{") {
            return Ok(vec![self.value()?]);
        }
        let mut values = vec![self.value()?];
        while !self.takes("}") {
            // Commas may be left out, and one may be last.
            self.takes(",");
            if !matches!(self.peek(), Some(Token::Mark("}"))) {
                values.push(self.value()?);
            }
        }
        if comparison.is_range() {
            return Err(refused(at, "only `==` and `!=` compare with several values"));
        }
        Ok(values)
    }

    fn value(&mut self) -> Result<(usize, Value), Refused> {
        let at = self.at();
        match self.peek() {
            Some(Token::Value(value)) => {
                let value = value.clone();
                self.next += 1;
                Ok((at, value))
            }
            _ => Err(refused(at, "expected a constant")),
        }
    }
}
