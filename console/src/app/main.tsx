import { createRoot } from 'react-dom/client';
import { App } from './app.tsx';
import { startLanguage } from './i18n.ts';
import './styles.css';
import './shell.css';
import './ui.css';

startLanguage();
const root = document.getElementById('root');
if (root) createRoot(root).render(<App />);
