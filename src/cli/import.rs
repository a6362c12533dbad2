//! `thumbd import`: likes from a CSV file into the database, beside a thumbd that serves.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::ProgressBar;
use tokio::sync::mpsc;

use super::lines;
use super::say::say;
use super::signals::Signals;
use crate::config::Settings;
use crate::domain::Kind;
use crate::moving::{Importer, Line, LineReader, Options, Summary};
use crate::service::Service;

/// Lines that are read ahead of what is imported.
const LINES_AHEAD: usize = 4096;
/// How often it says how far it is where nobody sees a bar.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("import")
        .about("Carry likes from a CSV file into the database, also while thumbd serves; exit 1 if any line was refused")
        .long_about(
            "Carry likes from a CSV file into the database, also while thumbd serves; exit 1 if any line was refused.\n\n\
             Times are RFC 3339, or a number since 1970 in seconds, milliseconds or microseconds, by its size. A like without a time is \
             older than any other; one of the future is as old as the import, and counts only where thumbd knows nothing. What thumbd \
             knows and is newer stays. A second run changes nothing. Likes of users and targets that were erased after them are left out, and \
             counted as erased.",
        )
        .arg(Arg::new("file").value_name("FILE").required(true).help(
            "CSV with user,target[,time[,kind]] a line, or what its header says; gzip is recognised; - is standard input",
        ))
        .arg(
            Arg::new("kind").long("kind").value_name("KIND")
                .value_parser(|text: &str| Kind::parse(text))
                .help("Kind of all targets; without it each line must name its kind"),
        )
        .arg(
            Arg::new("header").long("header").action(ArgAction::SetTrue)
                .help("The first line is a header, whatever it says; one that names user and target is recognised anyway"),
        )
        .arg(
            Arg::new("from-line").long("from-line").value_name("N").default_value("1")
                .value_parser(value_parser!(u64).range(1..))
                .help("Go on at this line of the file; it is as right, and slower, to begin again"),
        )
        .arg(
            Arg::new("max-errors").long("max-errors").value_name("N").default_value("0")
                .value_parser(value_parser!(u64))
                .help("Lines that may be refused; at one more it ends, before anything of the transaction with that line"),
        )
        .arg(
            Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue)
                .help("Only read the file and say which lines are wrong"),
        )
}

/// What the command is told.
pub(super) struct Arguments {
    file: String,
    kind: Option<Kind>,
    header: bool,
    from_line: u64,
    errors_max: u64,
    dry_run: bool,
}

impl Arguments {
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let number = |name: &str| matches.get_one::<u64>(name).copied();
        let file = matches.get_one::<String>("file").cloned();
        Ok(Self {
            file: file.context("FILE is missing")?,
            kind: matches.get_one::<Kind>("kind").cloned(),
            header: matches.get_flag("header"),
            from_line: number("from-line").unwrap_or(1),
            errors_max: number("max-errors").unwrap_or(0),
            dry_run: matches.get_flag("dry-run"),
        })
    }
}

/// Runs the command.
pub(super) async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    if let Some(kind) = &arguments.kind {
        let allowed = settings.kinds.allows(kind);
        anyhow::ensure!(
            allowed,
            "kind {kind} is not among the kinds in the settings"
        );
    }
    let (input, bar) = lines::open(&arguments.file)?;
    let mut reader = LineReader::new(
        arguments.kind.clone(),
        settings.kinds.clone(),
        arguments.header,
    );
    let (sender, mut receiver) = mpsc::channel(LINES_AHEAD);
    let reading = tokio::task::spawn_blocking(move || {
        lines::each(input, |number, fields| match reader.read(fields) {
            Some(like) => sender.blocking_send(Line { number, like }).is_ok(),
            None => true,
        })
    });
    let (summary, result) = if arguments.dry_run {
        (check(&mut receiver, &bar).await, Ok(()))
    } else {
        import(&settings, &arguments, &mut receiver, &bar).await?
    };
    drop(receiver);
    bar.finish_and_clear();
    say!("lines         {}", summary.lines);
    if !arguments.dry_run {
        say!("new likes     {}", summary.likes);
        say!("already there {}", summary.already);
        say!("erased        {}", summary.erased);
    }
    say!("refused       {}", summary.refused);
    say!("seconds       {:.1}", begun.elapsed().as_secs_f64());
    let reached = summary.reached;
    let go_on = || match reached {
        0 => "nothing was imported".to_owned(),
        _ => format!(
            "everything up to line {reached} is in: run it again, or go on with --from-line {}",
            reached + 1
        ),
    };
    result.with_context(go_on)?;
    // A read of standard input that is under way cannot be ended.
    if reading.is_finished() || arguments.file != "-" {
        reading
            .await
            .context("the reader died")?
            .with_context(|| format!("{} cannot be read to its end", arguments.file))
            .with_context(go_on)?;
    }
    if !arguments.dry_run {
        say!("reached line  {reached}");
    }
    Ok(if summary.refused == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Only says what is wrong.
async fn check(lines: &mut mpsc::Receiver<Line>, bar: &ProgressBar) -> Summary {
    let mut summary = Summary::default();
    while let Some(line) = lines.recv().await {
        summary.lines += 1;
        if let Err(problem) = line.like {
            summary.refused += 1;
            refused(bar, line.number, &problem);
        }
    }
    summary
}

async fn import(
    settings: &Settings,
    arguments: &Arguments,
    lines: &mut mpsc::Receiver<Line>,
    bar: &ProgressBar,
) -> anyhow::Result<(Summary, anyhow::Result<()>)> {
    let options = Options {
        from_line: arguments.from_line,
        errors_max: arguments.errors_max,
        ..Options::default()
    };
    let service = Service::build(settings).await?;
    let stop = options.stop.clone();
    let mut importer = Importer::begin(&service, settings, options).await?;
    let mut reported = Instant::now();
    let visible = std::io::stderr().is_terminal();
    let on_chunk = |summary: &Summary| {
        bar.set_message(format!("line {}", summary.reached));
        if !visible && reported.elapsed() > REPORT_PAUSE {
            reported = Instant::now();
            eprintln!("line {}, {} new likes", summary.reached, summary.likes);
        }
    };
    let on_refused = |number: u64, problem: &str| refused(bar, number, problem);
    let signals = Signals::listen().context("signals cannot be heard")?;
    let result = tokio::select! {
        result = importer.run(lines, on_refused, on_chunk) => result,
        never = signals.watch(stop.clone()) => match never {},
    };
    let result = match result {
        Ok(()) if stop.is_cancelled() => Err(anyhow::anyhow!("interrupted")),
        other => other.map_err(anyhow::Error::from),
    };
    Ok((importer.summary().clone(), result))
}

fn refused(bar: &ProgressBar, number: u64, problem: &str) {
    bar.suspend(|| eprintln!("line {number}: {problem}"));
}
